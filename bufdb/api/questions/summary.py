"""`summary` as an answer: the highest peak of what was asked about, and what holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bufdb.api.questions.opening import Open
from bufdb.database.definitions import CATALOG
from bufdb.errors import UsageError
from bufdb.query.asked import nothing, spaces
from bufdb.query.asked.known import Known
from bufdb.query.catalogue import Catalogue
from bufdb.resources import query_folder
from bufdb.summary import overview
from bufdb.summary.devices import limit_of

if TYPE_CHECKING:
    from bufdb.query.header import Value
    from bufdb.summary.overview import Overview


@dataclass(frozen=True)
class Summary:
    """What one screen says."""

    found: Overview
    note: str | None
    """Why there is nothing to show; None if there is something."""


def summary(
    opened: Open,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
    color: int | str | None = None,
    limit: int | str | None = None,
    names: Sequence[str] = tuple(overview.QUERIES),
    top_n: int | None = None,
) -> Summary:
    """The summary of the modules that the globs leave, against `limit` (see `limit_of`).

    Of all parts of a summary, or of those of `names`, with `top_n` rows of each.

    Raises:
        UsageError: the limit is none.
    """
    limits = limit_of(limit)
    space = None if color is None else str(color)
    given = {"run": run, "function": function, "module": module, "color": space}
    asked: dict[str, Value] = {name: text for name, text in given.items() if text is not None}
    catalogue = Catalogue([query_folder()])
    parts = overview.queries(catalogue, tuple(names))
    for query in parts.values():
        for name in asked:
            if query.param(name) is None:
                raise UsageError(f"summary: --{name} is no parameter of the query {query.name}")
    con = opened(overview.sql_of(parts), runs=None if run is None else [run])
    asked = spaces.numbered(con, next(iter(parts.values())), asked)
    found = overview.overview(con, parts, asked, *limits, top_n=top_n)
    if found.counts["module_count"]:
        return Summary(found, None)
    return Summary(found, nothing.why(Known(con, CATALOG), catalogue.find("modules"), asked))
