"""`diff` as an answer: two selections of runs side by side, or why there is nothing to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bufdb.api.questions.opening import Open
from bufdb.errors import UsageError, quote
from bufdb.query.asked.spaces import ALL
from bufdb.query.diff import (
    MOST_PLACES,
    SQL,
    Comparison,
    asked_pairs,
    compare,
    compare_top,
    pieces,
    selected_runs,
)
from bufdb.query.execute import runs_asked

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import Value

KEYS = ("op", "source", "shape", "dtype", "opcode", "category", "stack", "all")
"""Keys of the macro diff_peak."""


@dataclass(frozen=True)
class Diff:
    """Two sides."""

    comparison: Comparison
    note: str | None
    """Why there is no figure; None if there is one."""


def diff(
    opened: Open,
    base: str,
    new: str,
    *,
    top: int = 10,
    most_places: int = MOST_PLACES,
    **options: Any,
) -> Diff:
    """The modules of two runs side by side; arguments as the options of `bufdb diff`.

    Args:
        opened: opens the database.
        base: a run, or LABEL=VALUE.
        new: the same of the other side.
        top: places of which all figures are fetched, of others the peak alone.
        most_places: changed places of which the parts are fetched.
        options: by (one of KEYS, what the parts of a changed peak are grouped by), function
            (a glob), module (a glob of keys), color (a memory space, its number or its name, or
            all; the memory of the device by default) and pairs (texts OLD=NEW: which functions or
            modules are to be compared).

    Raises:
        UsageError: a run, a key or a pair that there is not.
    """
    con, values = _asked(opened, base, new, **options)
    found = compare_top(con, values, top, most_places)
    return Diff(found, None if found.figures else _why_nothing(con, values))


def in_pieces(opened: Open, base: str, new: str, **options: Any) -> Iterator[Diff]:
    """All rows of the same, some pairs at a time."""
    con, values = _asked(opened, base, new, **options)
    found = pieces(con, values, temps=True)
    first = next(found)
    if not first.figures:
        found.close()
        yield Diff(first, _why_nothing(con, values))
        return
    yield Diff(first, None)
    yield from (Diff(piece, None) for piece in found)


def _asked(
    opened: Open,
    base: str,
    new: str,
    *,
    by: str = "op",
    function: str | None = None,
    module: str | None = None,
    color: int | str | None = None,
    pairs: Sequence[str] = (),
) -> tuple[duckdb.DuckDBPyConnection, dict[str, Value]]:
    """The database and what it is asked; arguments and errors as those of `diff`."""
    if by not in KEYS:
        raise UsageError(f"--by is one of {', '.join(KEYS)}, got {quote(by)}")
    values: dict[str, Value] = {"base": base, "new": new, "key_name": by}
    values |= {"function": function, "module": module}
    values["color"] = None if color is None else str(color)
    con = opened(SQL, runs=runs_asked(values))
    for selection in (base, new):
        selected_runs(con, selection)
    values["pair"] = asked_pairs(con, base, new, pairs)
    return con, values


def _why_nothing(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> str:
    """Why neither side has a figure."""
    filters = ("function", "module", "color")
    given = [name for name in filters if values[name] is not None]
    everything = {**values, **dict.fromkeys(filters), "color": ALL}
    whole = compare(con, everything, temps=False).figures
    if not whole:
        return "no rows: neither side has a module"
    functions = ", ".join(dict.fromkeys(row.function_name for row in whole))
    spaces = ", ".join(
        dict.fromkeys(f"{row.color} ({row.memory_space_name or 'no name'})" for row in whole)
    )
    asked = " and ".join(f"{name} {quote(str(values[name]))}" for name in given)
    return f"no rows: neither side has {asked}; there is {functions} in memory space {spaces}"
