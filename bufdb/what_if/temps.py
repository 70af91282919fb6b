"""A module's temporary values read back from tables, and which of them a name selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.database.engine import duckdb
from bufdb.errors import BufdbError, UsageError, did_you_mean, quote
from bufdb.memory.buffers import buffers, labels_of_buffers, shared_slots
from bufdb.memory.needs import Kept, Needs
from bufdb.memory.occupancy import Occupancy, occupancy
from bufdb.memory.ranges import Ranges
from bufdb.memory.savings import LARGE_PART
from bufdb.rows.op_names import op_path, strip_op_path
from bufdb.what_if.module_choice import Choice

# -- The temp values of one module and memory space, with the names by which people know them ------
#
# What ingest knows when it writes `peak_savings` is read here from the database: ranges, which
# values are one buffer, and to which line and op each is attributed. Names are those of
# `peak_savings` and of attributed_peak_values in `schema/`, for all values of the module and not
# only for those at the peak: what is away from it may be the next one.

VALUES = """
SELECT
  held.value_id,
  held.allocation_index,
  held.offset_bytes,
  held.size_bytes,
  held.start_time,
  held.end_time,
  held.is_phi,
  coalesce(peak_values.held_bytes, 0),
  CASE held.shape_index
    WHEN '{}' THEN held.instruction_name
    ELSE held.instruction_name || held.shape_index
  END,
  coalesce(origins.relation || origins.own_source, held.own_source),
  coalesce(origins.relation || origins.library_source, held.library_source),
  origins.relation,
  origins.op_name,
  held.op_name,
  coalesce(origins.is_layer_input, FALSE),
  held.dtype,
  costs.operation_count,
  coalesce(origins.is_residual, FALSE),
  CASE WHEN origins.is_residual THEN made.written_by END,
  coalesce(made.slice_count, 1),
  held.shape
FROM value_details AS held
LEFT JOIN peak_values
  ON peak_values.module_id = held.module_id
  AND peak_values.value_id = held.value_id
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = held.module_id
  AND origins.value_id = held.value_id
LEFT JOIN value_origins AS made
  ON made.module_id = held.module_id
  AND made.value_id = held.value_id
LEFT JOIN recompute_costs AS costs
  ON costs.module_id = held.module_id
  AND costs.value_id = held.value_id
WHERE held.module_id = $module_id
  AND held.color = $color
  AND held.allocation_kind = 'temp'
  AND held.size_bytes > 0
  AND held.start_time <= held.end_time
ORDER BY held.value_id
"""
PARTS = """
SELECT written_by, part_kind, part_index, saving_form, operation_count, kept_bytes, kept_name
FROM recompute_parts
WHERE module_id = $module_id
"""
MAKERS = """
SELECT value_id, instruction_name
FROM recompute_instructions
WHERE module_id = $module_id
ORDER BY value_id, instruction_name
"""
TIMES = """
SELECT instruction_name, run_ns
FROM run_times
WHERE module_id = $module_id
"""
USERS = """
SELECT
  value_id,
  own_source_file || ':' || own_source_line,
  library_source,
  op_name
FROM named_uses
WHERE module_id = $module_id
"""
"""The uses of values that XLA made without an op_name."""
POSITIONS = """
SELECT positions.value_id, positions.shape_index, positions.position_ordinal = 0
FROM positions
WHERE positions.module_id = $module_id
  AND positions.value_id IN (
    SELECT others.value_id
    FROM "values" AS phis
    JOIN "values" AS others
      ON others.module_id = phis.module_id
      AND others.allocation_index = phis.allocation_index
      AND others.offset_bytes = phis.offset_bytes
      AND others.size_bytes = phis.size_bytes
    WHERE phis.module_id = $module_id
      AND phis.is_phi
  )
ORDER BY positions.value_id, positions.position_ordinal
"""
SQL = "\n".join([VALUES, PARTS, MAKERS, TIMES, USERS, POSITIONS])
"""Every question to the database, for opening it."""


@dataclass(frozen=True)
class Labels:
    """A name for each value; values of a buffer have the same name."""

    of_row: Ints
    """For each value, the number of its name; -1 if it has none."""
    names: Sequence[str]


@dataclass(frozen=True)
class Temps:
    """Values that occupy bytes of temp allocations, in order of their numbers."""

    value_id: Ints
    ranges: Ranges
    """Ranges, all of group 0."""
    occupied: Occupancy
    held_bytes: Ints
    """peak_values.held_bytes; 0 for values that hold nothing at the peak."""
    buffer: Ints
    """For each value, the lowest row of its buffer."""
    is_layer_input: Bools
    is_residual: Bools
    """Whether a loop stacks the value for the backward pass."""
    needs: Sequence[Needs | None]
    """Requirements for leaving out what a loop stacks for the backward pass; None for others."""
    slice_bytes: Ints
    """Size of one slice of these with padding; 0 for an input of the layer."""
    operation_counts: Sequence[int | None]
    """recompute_costs.operation_count."""
    least_counted: int
    """Minimum bytes of a value whose operations are counted."""
    dtypes: Sequence[str | None]
    """Element types; None for a tuple's table or if the shape was not understood."""
    value_names: Sequence[str]
    shapes: Sequence[str | None]
    """Name of the instruction, with the index in its shape if it has one."""
    labels: dict[str, Labels]
    """Labels by source_line and op, as in peak_savings; by value, one for each buffer."""
    makers: Sequence[frozenset[str | None]]
    """For each value, what is executed to compute it again (recompute_instructions)."""
    run_ns: dict[str, int]
    """Measured time of each instruction in one run (run_times); empty without a profile."""


def load(con: duckdb.DuckDBPyConnection, choice: Choice) -> Temps:
    """Return the temp values of a module in a memory space.

    Raises:
        BufdbError: their peak differs from the stored one.
    """
    parameters = {"module_id": choice.module_id, "color": choice.color}
    rows = con.execute(VALUES, parameters).fetchall()
    columns: list[Any] = list(map(list, zip(*rows, strict=True))) or [[] for _ in range(21)]
    value_id, *numbers = (np.array(column, np.int64) for column in columns[:6])
    is_phi, held = np.array(columns[6], np.bool_), np.array(columns[7], np.int64)
    ranges = Ranges(np.zeros(len(rows), np.int64), *numbers)
    occupied = occupancy(ranges, 1, np.array([choice.schedule_length]))
    top = int(occupied.peak[0]) + choice.fixed_bytes, int(occupied.peak_time[0])
    if top != (choice.peak_bytes, choice.peak_time):
        raise BufdbError(
            f"the values of {choice.module_key} have a peak of {top[0]} bytes at {top[1]}, "
            f"stored is {choice.peak_bytes} at {choice.peak_time}; see 'bufdb check'"
        )
    buffer = _buffers(con, choice.module_id, value_id, ranges, is_phi)
    lines, ops = _attributed(con, choice.module_id, columns)
    holds = held > 0
    holder = np.arange(len(rows))
    holder[buffer[holds]] = np.flatnonzero(holds)
    labels = {
        "source_line": _labels(buffer, lines, holds),
        "op": _labels(buffer, ops, holds),
        "value": Labels(buffer, [columns[8][row] for row in holder.tolist()]),
    }
    known = _needs(con, choice.module_id)
    needs, slices = _stacks(buffer, holds, [known.get(name) for name in columns[18]], columns)
    return Temps(
        value_id,
        ranges,
        occupied,
        held,
        buffer,
        np.array(columns[14], np.bool_),
        np.array(columns[17], np.bool_),
        needs,
        slices,
        columns[16],
        -(-choice.peak_bytes // LARGE_PART),
        columns[15],
        columns[8],
        columns[20],
        labels,
        _makers(con, choice.module_id, value_id),
        dict(con.execute(TIMES, {"module_id": choice.module_id}).fetchall()),
    )


def _makers(
    con: duckdb.DuckDBPyConnection, module_id: int, value_id: Ints
) -> Sequence[frozenset[str | None]]:
    """Return for each value what is executed to compute it again."""
    makers: dict[int, set[str | None]] = {}
    for number, name in con.execute(MAKERS, {"module_id": module_id}).fetchall():
        makers.setdefault(number, set()).add(name)
    return [frozenset(makers.get(number, ())) for number in value_id.tolist()]


def _buffers(
    con: duckdb.DuckDBPyConnection, module_id: int, value_id: Ints, ranges: Ranges, is_phi: Bools
) -> Ints:
    """Return, for each value, the lowest row of its buffer."""
    slot = shared_slots(ranges, is_phi)
    row_of = {number: row for row, number in enumerate(value_id.tolist())}
    index_of: dict[str, int] = {}
    row, index, is_defining = [], [], []
    if (slot >= 0).any():
        rows = con.execute(POSITIONS, {"module_id": module_id}).fetchall()
        for number, text, defines in rows:
            if number in row_of:
                row.append(row_of[number])
                index.append(index_of.setdefault(text, len(index_of)))
                is_defining.append(defines)
    return buffers(
        slot,
        is_phi,
        ranges.start,
        ranges.end,
        np.array(row, np.int64),
        np.array(index, np.uint64),
        np.array(is_defining, np.bool_),
    )


def _needs(con: duckdb.DuckDBPyConnection, module_id: int) -> dict[str, Needs]:
    """Return the requirements of each stack, by the instruction that inserts its slices."""
    forms: dict[str, str] = {}
    parts: dict[str, dict[str, dict[int, Any]]] = {}
    for name, kind, index, form, count, size, line in con.execute(
        PARTS, {"module_id": module_id}
    ).fetchall():
        forms[name] = form
        parts_of_stack = parts.setdefault(name, {"again": {}, "all_again": {}, "kept": {}})
        parts_of_stack[kind][index] = Kept(line, size) if kind == "kept" else count
    # A removed stack is recomputed, so "again" has at least the stack itself.
    return {
        name: Needs(
            forms[name],
            bool(parts_of_stack["again"]),
            parts_of_stack["kept"],
            parts_of_stack["again"],
            parts_of_stack["all_again"],
        )
        for name, parts_of_stack in parts.items()
    }


def _stacks(
    buffer: Ints, holds: Bools, needs: Sequence[Needs | None], columns: Sequence[Sequence[Any]]
) -> tuple[Sequence[Needs | None], Ints]:
    """Return, per value, the requirements of its buffer's stack, and the size of one slice.

    Args:
        buffer: the buffer of each value.
        holds: whether each value holds bytes at the peak.
        needs: the requirements of each value by itself.
        columns: the columns of `VALUES`.
    """
    there = np.array([-1 if one is None else row for row, one in enumerate(needs)], np.int64)
    stack = labels_of_buffers(buffer, there, holds).tolist()
    sizes = [
        0 if row < 0 or columns[14][row] else -(-size // columns[19][row])
        for row, size in zip(stack, columns[3], strict=True)
    ]
    return [None if row < 0 else needs[row] for row in stack], np.array(sizes, np.int64)


def _attributed(
    con: duckdb.DuckDBPyConnection, module_id: int, columns: Sequence[Sequence[Any]]
) -> tuple[list[str | None], list[str | None]]:
    """Return the line and the op of each value, None if unknown."""
    users = {
        number: (line, library, op)
        for number, line, library, op in con.execute(USERS, {"module_id": module_id}).fetchall()
    }
    lines: list[str | None] = []
    ops: list[str | None] = []
    cells = zip(columns[0], *columns[9:14], strict=True)
    for number, line, library, relation, origin_op, own_op in cells:
        use_line, use_library, use_op = users.get(number, (None, None, None))
        named = (line, _for(use_line), library, _for(use_library))
        lines.append(next((name for name in named if name is not None), None))
        if origin_op is not None:
            ops.append(relation + strip_op_path(op_path(origin_op)))
        elif own_op is not None:
            ops.append(strip_op_path(op_path(own_op)))
        else:
            ops.append(None if use_op is None else "for " + strip_op_path(op_path(use_op)))
    return lines, ops


def _for(name: str | None) -> str | None:
    return None if name is None else f"for {name}"


def _labels(buffer: Ints, names: Sequence[str | None], holds: Bools) -> Labels:
    number_of: dict[str, int] = {}
    numbers = [-1 if name is None else number_of.setdefault(name, len(number_of)) for name in names]
    of_row = labels_of_buffers(buffer, np.array(numbers, np.int64), holds)
    return Labels(of_row, list(number_of))


# -- Resolve `line:`, `op:` and `value:` patterns: sets of values, each with its name --------------

KINDS = {"line": "source_line", "op": "op", "value": "value"}
"""peak_savings.what by the word before the colon."""
_RELATIONS = ("saved ", "slice of ", "copy of ", "for ")
RELATIONS = (*(f"{relation}library " for relation in (*_RELATIONS, "")), *_RELATIONS)
"""Prefixes of the name of a line or an op: value_origin_details.relation, or "for"; for a line of
library code followed by "library"."""


@dataclass(frozen=True)
class Taken:
    """Values that are removed, or shrunk."""

    what: str
    """source_line, op or value."""
    name: str
    rows: Ints
    """Rows of `Temps`, whole buffers."""


def find(temps: Temps, patterns: Iterable[str]) -> list[Taken]:
    """Return the values that patterns select, each name once.

    A pattern that is a full name selects only that name. Any other is a glob over names without
    their prefixes (saved, for), or over their last elements, so that `model.py:53` matches any file
    of that name; a pattern with such a prefix selects only names that have it.

    Raises:
        UsageError: a pattern is of unknown kind, or selects nothing.
    """
    by_name: dict[tuple[str, str], Taken] = {}
    for pattern in patterns:
        kind, colon, glob = pattern.partition(":")
        if not colon or not glob or kind not in KINDS:
            raise UsageError(
                f"--without wants line:GLOB, op:GLOB or value:GLOB, got {quote(pattern)}"
            )
        what = KINDS[kind]
        taken = _values(temps, glob) if kind == "value" else _labelled(temps, what, glob)
        if not taken:
            raise UsageError(
                f"no {kind} {quote(glob)} has temporary memory{_near(temps, what, glob)}"
            )
        for one in taken:
            by_name.setdefault((one.what, one.name), one)
    return list(by_name.values())


def _labelled(temps: Temps, what: str, glob: str) -> list[Taken]:
    labels = temps.labels[what]
    used = np.unique(labels.of_row[labels.of_row >= 0]).tolist()
    numbers = [number for number in used if labels.names[number] == glob]
    numbers = numbers or [number for number in used if _fits(labels.names[number], glob)]
    return [
        Taken(what, labels.names[number], np.flatnonzero(labels.of_row == number))
        for number in numbers
    ]


def _values(temps: Temps, glob: str) -> list[Taken]:
    """Return whole buffers, each under the first of its names that matches.

    After a blank the pattern has a shape, as names of `bufdb query savings` do.
    """
    glob, _, shape = glob.partition(" ")
    names = list(enumerate(temps.value_names))
    if shape:
        names = [(row, name) for row, name in names if fits(temps.shapes[row] or "", shape)]
    rows = [row for row, name in names if name == glob or _is_of(name, glob)]
    rows = rows or [row for row, name in names if _fits_value(name, glob)]
    first = {int(temps.buffer[row]): row for row in reversed(rows)}
    return [
        Taken("value", temps.value_names[row], np.flatnonzero(temps.buffer == buffer))
        for buffer, row in sorted(first.items(), key=lambda item: item[1])
    ]


def _is_of(name: str, instruction: str) -> bool:
    """Return whether the value is the instruction's result, or an element of it."""
    return name.partition("{")[0] == instruction


def fits(name: str, glob: str) -> bool:
    """Return whether a name matches a glob; brackets may be a set or literal: params['w']."""
    return fnmatchcase(name, glob) or fnmatchcase(name, glob.replace("[", "[[]"))


def _fits_value(name: str, glob: str) -> bool:
    return fits(name, glob) or fits(name.partition("{")[0], glob)


def _fits(name: str, glob: str) -> bool:
    relation = relation_of(glob)
    if relation_of(name) != relation and relation:
        return False
    bare, glob = name.removeprefix(relation_of(name)), glob.removeprefix(relation)
    return fits(bare, glob) or fits(bare, f"*/{glob}")


def relation_of(name: str) -> str:
    """Return the prefix of the name of a line or op; '' if it has none."""
    return next((relation for relation in RELATIONS if name.startswith(relation)), "")


def _near(temps: Temps, what: str, glob: str) -> str:
    """Return a hint at a similar name, or at where its bytes are."""
    labels = temps.labels[what]
    used = set(np.unique(labels.of_row).tolist())
    names: Sequence[str] = [name for at, name in enumerate(labels.names) if at in used]
    if what == "value":
        names = temps.value_names
    elif any(name == glob or _fits(name, glob) for name in labels.names):
        return " of its own: its results are in buffers of other names; value:GLOB removes them"
    path = strip_op_path(op_path(glob))
    if what == "op" and path != glob and any(_fits(name, path) for name in names):
        return f"; without jit and transformations it is {quote(path)}"
    bare = {name.removeprefix(relation_of(name)) for name in names}
    short = {name.rpartition("/")[2] for name in bare}
    hint = did_you_mean(glob.strip("*"), sorted(bare | short))
    return hint or f"; 'bufdb query savings -p what {what} -p top_n 100' lists what the peak has"
