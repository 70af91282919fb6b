"""Choose a module in one memory space whose values are known, so that some can be removed."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from bufdb.errors import BufdbError
from bufdb.query import subject
from bufdb.query.header import Value

SQL = f"{subject.SQL}\n{subject.NAMES}"


@dataclass(frozen=True)
class Choice:
    """A module in one memory space; its peak is known."""

    run_name: str
    module_id: int
    module_key: str
    function_name: str
    """The module's key if that is unknown."""
    color: int
    memory_space: str
    fixed_bytes: int
    need_bytes: int
    """Memory that a device must have."""
    peak_bytes: int
    peak_time: int
    schedule_length: int
    others: str
    """A sentence on other matching modules; '' if there are none."""


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
    asked: dict[str, Value] = {"run": run, "color": color}
    found = subject.choose(con, "what-if", module, asked)
    peak, fixed, need, color = found.peak_bytes, found.fixed_bytes, found.need_bytes, found.color
    if peak is None:
        raise BufdbError(f"the peak of {found.module_key} is unknown: {found.unknown_reason}")
    if found.peak_time is None:
        raise BufdbError(f"{found.module_key} is a message in a log, which has no live ranges")
    if fixed is None or need is None or color is None:
        raise BufdbError(f"the allocations of {found.module_key} are unknown")
    return Choice(
        found.run_name,
        found.module_id,
        found.module_key,
        found.function_name,
        color,
        found.memory_space,
        fixed,
        need,
        peak,
        found.peak_time,
        found.schedule_length,
        found.others,
    )
