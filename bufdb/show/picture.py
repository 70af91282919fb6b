"""The data of a module's picture: its memory over the program, in columns, each at one instant.

A column of a picture covers several instants of a long program. It shows one of them, the first
with the most bytes; everything in the column is of that instant, so that the column adds up to
bytes that were live together.

Invariant: bytes at an instant are those of memory_steps, and the parts of a column and fixed_bytes
add up to them; a byte has one owner by the rule of peak_values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bufdb.database.engine import duckdb
from bufdb.errors import UsageError
from bufdb.query import execute
from bufdb.query.catalogue import Catalogue
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result
from bufdb.query.subject import Subject

STEPS = """
SELECT start_time, occupied_bytes
FROM memory_steps
WHERE module_id = $module_id AND color = $color
ORDER BY start_time
"""
PEAKS = """
SELECT peaks.peak_ordinal, peaks.peak_time, memory_sums.fixed_bytes + peaks.occupied_temp_bytes
FROM peaks
JOIN memory_sums ON memory_sums.module_id = peaks.module_id AND memory_sums.color = peaks.color
WHERE peaks.module_id = $module_id AND peaks.color = $color
ORDER BY peaks.peak_ordinal
LIMIT $count
"""
ASKED_INSTANT = """
SELECT instant_time, occupied_bytes, missing_reason
FROM asked_instants
"""
INSTRUCTION = """
SELECT instruction_name, opcode
FROM instructions
WHERE module_id = $module_id AND program_order = $time
ORDER BY instruction_name
LIMIT 1
"""
ALLOCATIONS = """
SELECT allocation_index, size_bytes
FROM allocations
WHERE module_id = $module_id AND color = $color AND kind = 'temp'
ORDER BY allocation_index
"""
PARTS = """
WITH instants AS (
  SELECT DISTINCT unnest($times::BIGINT[]) AS instant_time
),
live AS (
  SELECT
    instants.instant_time,
    temp_values.allocation_index,
    temp_values.value_id,
    temp_values.size_bytes,
    temp_values.begin_bytes,
    temp_values.end_bytes
  FROM instants
  JOIN temp_values
    ON temp_values.start_time <= instants.instant_time
    AND temp_values.end_time >= instants.instant_time
  WHERE temp_values.module_id = $module_id AND temp_values.color = $color
),
covered AS (
  SELECT
    live.instant_time,
    live.allocation_index,
    live.value_id,
    live.end_bytes,
    greatest(
      live.begin_bytes,
      coalesce(
        max(live.end_bytes) OVER (
          PARTITION BY live.instant_time, live.allocation_index
          ORDER BY live.begin_bytes, live.size_bytes DESC, live.value_id
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        live.begin_bytes
      )
    ) AS begin_bytes
  FROM live
),
parts AS (
  SELECT * FROM covered WHERE end_bytes > begin_bytes
),
named AS (
  SELECT
    held.value_id,
    CASE $by
      WHEN 'line' THEN coalesce(
        origins.relation || origins.own_source, held.own_source,
        'for ' || named_uses.own_source_file || ':' || named_uses.own_source_line,
        origins.relation || origins.library_source, held.library_source,
        'for ' || named_uses.library_source
      )
      WHEN 'op' THEN coalesce(
        origins.relation || origins.stripped_op_path, held.stripped_op_path,
        'for ' || named_uses.stripped_op_path
      )
      WHEN 'category' THEN op_name_categories.category
      WHEN 'dtype' THEN held.dtype
      ELSE held.instruction_name || nullif(held.shape_index, '{}')
    END AS group_name
  FROM value_details AS held
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = held.module_id AND origins.value_id = held.value_id
  LEFT JOIN named_uses
    ON named_uses.module_id = held.module_id AND named_uses.value_id = held.value_id
  LEFT JOIN op_name_categories
    ON op_name_categories.module_id = held.module_id
    AND op_name_categories.op_name = coalesce(origins.op_name, held.op_name)
    AND $by = 'category'
  WHERE held.module_id = $module_id
    AND held.value_id IN (SELECT parts.value_id FROM parts)
)
SELECT
  parts.instant_time, parts.allocation_index, parts.begin_bytes, parts.end_bytes,
  named.group_name
FROM parts
LEFT JOIN named ON named.value_id = parts.value_id
ORDER BY parts.instant_time, parts.allocation_index, parts.begin_bytes
"""
UNSEEN = """
SELECT count(*)
FROM temp_values
WHERE module_id = $module_id
  AND color = $color
  AND size_bytes > 0
  AND NOT EXISTS (
    SELECT 1
    FROM (SELECT DISTINCT unnest($times::BIGINT[]) AS instant_time) AS instants
    WHERE instants.instant_time BETWEEN temp_values.start_time AND temp_values.end_time
  )
"""
BY = ("line", "op", "category", "dtype", "value")
"""The properties by which buffers can be colored."""
TREES = {"op": "peak-by-op", "line": "peak-by-source-line", "stack": "peak-by-stack"}
"""The saved query of each kind of tree."""
LABELS = {
    "peak-by-op": "op_path",
    "peak-by-source-line": "source",
    "peak-by-stack": "call_stack",
}
"""The column of each query that becomes a tree."""
VALUES = "peak"
"""The saved query of values that hold bytes at an instant."""
SIZES = "top-values"
"""The saved query of values for an unknown peak."""
MOST_PEAKS = 9
ALL = 2**62
"""More rows than any answer has."""

Step = tuple[int, int]
"""First instant of a span of the program, and the bytes occupied in it."""


@dataclass(frozen=True)
class Part:
    """Bytes of a temp allocation that belong to one buffer."""

    begin_bytes: int
    """Offset in the arena [bytes], which is all temp allocations, one after the other."""
    end_bytes: int
    group: str | None
    """The property that it is colored by; None if unknown."""


@dataclass
class Column:
    """One instant, which represents several consecutive ones."""

    time: int
    occupied_bytes: int
    parts: list[Part] = field(default_factory=list)
    """Disjoint parts, ordered by first byte."""


@dataclass
class Picture:
    """A module over the program, and one instant of it."""

    subject: Subject
    instant: Column
    """The chosen instant, by default the peak."""
    instruction: tuple[str, str | None] | None
    """Name and opcode of the instruction at the instant; None at the end of the program."""
    columns: list[Column]
    last: int
    """The last instant of the program, or of live ranges beyond it in a damaged dump."""
    place: int
    """Index of the column that contains the chosen instant; it may show another one."""
    peaks: list[tuple[int, int, int]]
    """Number, instant and bytes of the distinct peaks, the highest first."""
    by: str
    """The property that parts are colored by."""
    is_without_lines: bool
    """Whether `by` is op only because no line is known."""
    arena_bytes: int
    walls: list[int]
    """Starts of the temp allocations in the arena, except the first [bytes]."""
    unseen_count: int
    """Temp values that are live only between the instants of the columns."""


def queries(catalogue: Catalogue, tree: str | None) -> dict[str, SavedQuery]:
    """Return the saved queries that may be used."""
    names = [VALUES, SIZES, *([TREES[tree]] if tree else [])]
    return {name: catalogue.find(name) for name in names}


def sql_of(queries: Mapping[str, SavedQuery]) -> str:
    """Return all SQL that is executed for a picture; `open_readable` derives the views it needs."""
    own = [STEPS, PEAKS, ASKED_INSTANT, INSTRUCTION, ALLOCATIONS, PARTS, UNSEEN]
    return "\n".join([*own, *(query.sql for query in queries.values())])


def picture(
    con: duckdb.DuckDBPyConnection,
    subject: Subject,
    column_count: int,
    instant: Mapping[str, Value],
    by: str | None = None,
) -> Picture:
    """Return the picture of a module whose peak is known.

    Args:
        con: the database.
        subject: the module in a memory space.
        column_count: columns to show.
        instant: step or peak, the instant to choose; the peak if neither is given.
        by: one of BY; None for lines, or for ops where no line is known.

    Raises:
        UsageError: there is no such instant.
    """
    parameters: dict[str, object] = {"module_id": subject.module_id, "color": subject.color}
    chosen = _instant(con, subject, instant)
    steps = con.execute(STEPS, parameters).fetchall() or [(0, subject.fixed_bytes or 0)]
    last = max(subject.schedule_length, steps[-1][0], chosen.time)
    columns = [Column(*pair) for pair in highest(steps, last, column_count)]
    rows = con.execute(ALLOCATIONS, parameters).fetchall()
    times = [column.time for column in [*columns, chosen]]
    parts = con.execute(PARTS, {**parameters, "times": times, "by": by or "line"}).fetchall()
    is_without_lines = by is None and bool(parts) and all(row[-1] is None for row in parts)
    if is_without_lines:
        parts = con.execute(PARTS, {**parameters, "times": times, "by": "op"}).fetchall()
    starts, arena_bytes = _arena(rows, parts)
    by_time: dict[int, list[Part]] = {}
    for time, index, begin, end, group in parts:
        part = Part(starts[index] + begin, starts[index] + end, group)
        by_time.setdefault(time, []).append(part)
    for column in [*columns, chosen]:
        column.parts = by_time.get(column.time, [])
    ((unseen,),) = con.execute(UNSEEN, {**parameters, "times": times}).fetchall()
    return Picture(
        subject,
        chosen,
        _instruction(con, subject, chosen.time),
        columns,
        last,
        place_of(chosen.time, last, column_count),
        con.execute(PEAKS, {**parameters, "count": MOST_PEAKS}).fetchall(),
        "op" if is_without_lines else by or "line",
        is_without_lines,
        arena_bytes,
        sorted(set(starts.values()) - {0}),
        unseen,
    )


def values(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    subject: Subject,
    instant: Mapping[str, Value],
    top_n: int,
) -> Result:
    """Return the first `top_n` rows of a saved query about the module at the instant."""
    values = {**subject.filters, **instant, "top_n": top_n}
    known = {name: value for name, value in values.items() if query.param(name) is not None}
    return execute.execute_query(con, query, known)


def labels(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    subject: Subject,
    instant: Mapping[str, Value],
) -> list[tuple[str, int]]:
    """Return all labels of a tree's saved query at the instant, with their bytes."""
    every_label = values(con, query, subject, instant, ALL)
    names = [name for name, _ in every_label.columns]
    label, size = names.index(LABELS[query.name]), names.index("held_bytes")
    return [(row[label], row[size]) for row in every_label.rows if row[size] is not None]


def span_of(column: int, last: int, column_count: int) -> tuple[int, int]:
    """Return the first and last instant that a column covers; the program ends at `last`.

    In a program with fewer instants than columns, several columns cover the same instant.
    """
    begin = column * (last + 1) // column_count
    return begin, max(begin, (column + 1) * (last + 1) // column_count - 1)


def place_of(time: int, last: int, column_count: int) -> int:
    """Return the index of the first column that covers an instant."""
    ends = (span_of(column, last, column_count)[1] for column in range(column_count))
    return next((place for place, end in enumerate(ends) if end >= time), column_count - 1)


def highest(steps: Sequence[Step], last: int, column_count: int) -> Iterator[Step]:
    """Yield, per column, the first of its instants with the most bytes, and those bytes.

    Args:
        steps: spans by their first instant, the first from 0 on; each lasts until the next one.
        last: the last instant.
        column_count: number of columns.
    """
    place = 0
    for column in range(column_count):
        begin, end = span_of(column, last, column_count)
        while place + 1 < len(steps) and steps[place + 1][0] <= begin:
            place += 1
        best = (begin, steps[place][1])
        while place + 1 < len(steps) and steps[place + 1][0] <= end:
            place += 1
            if steps[place][1] > best[1]:
                best = steps[place]
        yield best


def _instant(
    con: duckdb.DuckDBPyConnection, subject: Subject, instant: Mapping[str, Value]
) -> Column:
    """Return the chosen instant."""
    if not instant or instant.get("peak") == 1:
        assert subject.peak_time is not None and subject.peak_bytes is not None
        return Column(subject.peak_time, subject.peak_bytes)
    sql = f"{ASKED_INSTANT} WHERE module_id = {subject.module_id} AND color = {subject.color}"
    ((time, size, reason),) = execute.execute_with(con, sql, instant, "show").rows
    if reason is not None:
        what = " ".join(f"{name} {value}" for name, value in instant.items())
        raise UsageError(f"show: no {what} in {subject.function_name}: {reason}")
    return Column(time, size)


def _instruction(
    con: duckdb.DuckDBPyConnection, subject: Subject, time: int
) -> tuple[str, str | None] | None:
    parameters = {"module_id": subject.module_id, "time": time}
    rows = con.execute(INSTRUCTION, parameters).fetchall()
    return (rows[0][0], rows[0][1]) if rows else None


def _arena(
    allocations: Iterable[tuple[int, int]], parts: Iterable[tuple[int, int, int, int, object]]
) -> tuple[dict[int, int], int]:
    """Return where each temp allocation begins in the arena, and their total size.

    In a damaged dump values may lie past the end of their allocation, which is then enlarged.
    """
    ends: dict[int, int] = {}
    for _, index, _, end, _ in parts:
        ends[index] = max(end, ends.get(index, 0))
    starts, total = {}, 0
    for index, size in allocations:
        starts[index] = total
        total += max(size, ends.get(index, 0))
    return starts, total
