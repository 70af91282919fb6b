"""Choose a module in one memory space whose values are known, so that some can be removed."""

from __future__ import annotations

from dataclasses import dataclass

from bufdb.database.engine import duckdb
from bufdb.errors import BufdbError
from bufdb.query import subject
from bufdb.query.header import Value
from bufdb.query.subject import Subject

SQL = f"{subject.SQL}\n{subject.NAMES}"


@dataclass(frozen=True)
class Choice(Subject):
    """A module in one memory space; its peak, its instants and its allocations are known."""

    color: int
    need_bytes: int
    peak_bytes: int
    peak_time: int
    fixed_bytes: int


def choose(
    con: duckdb.DuckDBPyConnection, module: str, run: str | None, color: int | str | None
) -> Choice:
    """Return the module that `subject.choose` selects.

    Args:
        con: the database.
        module: key or name of a module, name of a function, or a glob of one.
        run: glob of a run's name, or of LABEL=VALUE; None for all runs.
        color: only this memory space, by number or name.

    Raises:
        UsageError: the name matches nothing, or there is no such memory space.
        BufdbError: no peak of the matching modules is known.
    """
    filters: dict[str, Value] = {"run": run, "color": color}
    chosen = subject.choose(con, "what-if", module, filters)
    if chosen.peak_bytes is None:
        raise BufdbError(f"the peak of {chosen.module_key} is unknown: {chosen.unknown_reason}")
    if chosen.peak_time is None:
        raise BufdbError(f"{chosen.module_key} is a message in a log, which has no live ranges")
    if None in (chosen.fixed_bytes, chosen.need_bytes, chosen.color):
        raise BufdbError(f"the allocations of {chosen.module_key} are unknown")
    return Choice(**vars(chosen))
