"""`report` as a function: one page of HTML about what was compiled."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

from bufdb.api.questions.opening import Open
from bufdb.database.definitions import CATALOG
from bufdb.errors import BufdbError
from bufdb.export.page import comparison, contents
from bufdb.query.asked import nothing
from bufdb.query.asked.known import Known
from bufdb.query.catalogue import Catalogue
from bufdb.report.html import page
from bufdb.resources import query_folder
from bufdb.summary.devices import limit_of

if TYPE_CHECKING:
    from bufdb.query.header import Value


def report(
    opened: Open,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
    platform: str | None = None,
    base: str | None = None,
    limit: int | str | None = None,
) -> str:
    """The page, as text; arguments as the options of `bufdb report`.

    Args:
        opened: opens the database.
        run: glob of runs, or of LABEL=VALUE; beside `base` the new side of the comparison.
        function: glob of functions.
        module: glob of modules' keys.
        platform: cpu, gpu or tpu.
        base: a run, or LABEL=VALUE, that the page compares with.
        limit: memory of the device: bytes, a size such as "16GiB", or a name as "TPU v5e".

    Raises:
        UsageError: wrong usage.
        BufdbError: no module fits.
    """
    limits = limit_of(limit)
    given = {"run": run, "function": function, "module": module, "platform": platform}
    asked: dict[str, Value] = {name: text for name, text in given.items() if text is not None}
    catalogue = Catalogue([query_folder()])
    sql = contents.sql(catalogue)
    runs = None if run is None else [run] if base is None else [run, base]
    con = opened(sql if base is None else sql + comparison.SQL, runs=runs)
    compared = None if base is None else comparison.compared(con, base, asked)
    sides = [asked] if compared is None else compared.asked(asked)
    found = contents.contents(con, catalogue, sides, compared)
    if not found.modules:
        why = nothing.why(Known(con, CATALOG), catalogue.find("modules"), asked)
        raise BufdbError(f"nothing to report: {why}")
    options = {**given, "diff": base, "limit": None if limit is None else str(limit)}
    words = [word for name, text in options.items() if text for word in (f"--{name}", text)]
    return page.page(
        found,
        partial(contents.pictures, con, found),
        command=shlex.join(["bufdb", "report", *words]),
        limit=limits,
    )
