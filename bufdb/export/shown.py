"""Choose the functions that a picture shows: the largest compilation each, in the device's memory.

`run`, `function`, `module` and `color` select as in saved queries, by the same view. No sum mixes
bytes of several memory spaces, or of functions that never run together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bufdb.database.engine import duckdb
from bufdb.errors import BufdbError, listed, quote
from bufdb.query import execute
from bufdb.query.header import Value
from bufdb.query.parameters import find_space, is_plain_space

SQL = """
SELECT
  asked.run_name,
  asked.function_name,
  coalesce(asked.memory_space_name, 'color ' || asked.color) AS memory_space,
  asked.module_id,
  asked.module_key,
  asked.color,
  asked.peak_bytes,
  asked.peak_time,
  coalesce(modules.schedule_length, 0) AS schedule_length,
  asked.unknown_reason
FROM asked_functions AS asked
LEFT JOIN modules ON modules.module_id = asked.module_id
ORDER BY
  asked.peak_bytes IS NULL, asked.need_bytes DESC NULLS LAST, asked.peak_bytes DESC,
  asked.run_name, asked.function_name, asked.color, asked.platform
"""
_MOST_NAMED = 3


@dataclass(frozen=True)
class Function:
    """A compilation of a jitted function in one memory space; its peak is known."""

    run_name: str
    function_name: str
    """The module's key if that is unknown."""
    memory_space: str
    module_id: int
    module_key: str
    color: int
    peak_bytes: int
    peak_time: int | None
    """[program order]; None for an out-of-memory message, which gives no instant."""
    schedule_length: int
    """The last instant [program order]."""

    @property
    def title(self) -> str:
        """Display name: train_step (cpu_b8, host)."""
        return f"{self.function_name} ({self.run_name}, {self.memory_space})"


MOST_PROFILES = 500
"""Maximum functions in one file of profiles: more are hard to browse, and each costs a query."""


@dataclass(frozen=True)
class Chosen:
    """The functions shown, and notes on the others."""

    functions: list[Function]
    """Largest need first; at least one."""
    notes: list[str]
    """Functions with an unknown peak, and why."""


def numbered(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> dict[str, Value]:
    """Return the parameters, with the number of a memory space in place of its name.

    Raises:
        UsageError: no memory space has that name, or spaces of several platforms do.
    """
    values = dict(filters)
    color = values.get("color")
    if color is not None and not is_plain_space(color):
        values["platform"], number = find_space(con, "export", str(color), values)
        values["color"] = str(number)
    return values


def choose(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> Chosen:
    """Return the selected functions.

    Raises:
        UsageError: there is no such memory space.
        BufdbError: nothing is selected, or no peak of what is selected is known.
    """
    rows = execute.execute_with(con, SQL, numbered(con, filters), "export").rows
    functions, notes = [], []
    for *facts, reason in rows:
        function = Function(*facts)
        if function.peak_bytes is not None:
            functions.append(function)
        if reason is not None:
            name = f"{function.function_name} ({function.run_name})"
            notes.append(f"{name}: unknown peak: {reason}")
    if not functions:
        if notes:
            raise BufdbError(f"nothing to export: {notes[0]}")
        wanted = ", ".join(f"{name} {quote(str(value))}" for name, value in filters.items())
        what = f"no module with {wanted}" if wanted else "no module is stored"
        raise BufdbError(f"nothing to export: {what}; 'bufdb query modules' lists them")
    notes = list(dict.fromkeys(notes))
    if len(notes) > _MOST_NAMED:
        notes[_MOST_NAMED:] = [f"{len(notes) - _MOST_NAMED} more functions have an unknown peak"]
    return Chosen(functions, notes)


def with_instants(chosen: Chosen) -> Chosen:
    """Return the functions whose instants are known, and notes about the others.

    Raises:
        BufdbError: none has known instants.
    """
    functions = [function for function in chosen.functions if function.peak_time is not None]
    notes = [
        f"{function.title}: a message in a log has only the peak"
        for function in chosen.functions
        if function.peak_time is None
    ]
    if not functions:
        raise BufdbError(f"nothing to export: {notes[0]}")
    return Chosen(functions, [*notes, *chosen.notes])


def first(chosen: Chosen, most: int = MOST_PROFILES) -> Chosen:
    """Return the functions with the largest needs, with a note on how many others there are."""
    left = len(chosen.functions) - most
    if left <= 0:
        return chosen
    note = f"the {most} functions with the largest needs are written, {left} more are not"
    return Chosen(chosen.functions[:most], [*chosen.notes, f"{note}; --function chooses"])


def largest(chosen: Chosen) -> Chosen:
    """Return only the function with the largest need, with a note about the others."""
    first, *others = chosen.functions
    if not others:
        return chosen
    names = listed([function.title for function in others], _MOST_NAMED)
    note = f"{first.title} is written, which has the largest need; not {names}"
    return Chosen([first], [*chosen.notes, note])
