"""The values of modules in the database, with what each is attributed to.

Attribution is that of `attributed_peak_values`, at all instants instead of the peak: to what made
the data that a loop carries, else to the instruction that defines it, else to its use. So sums over
the values that are live at the peak are those of `peak-by-source-line` and similar queries.

Many modules are queried at once, by the variable `shown`: a query for each would take longer than
everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bufdb.database import definitions, narrowing
from bufdb.database.engine import duckdb
from bufdb.query import execute

_SHOWN = "IN (SELECT unnest(string_split(getvariable('shown')::VARCHAR, ','))::BIGINT)"

VALUES = f"""
WITH whole_times AS (
  SELECT module_id, sum(run_ns) AS module_ns
  FROM run_times
  WHERE module_id {_SHOWN}
  GROUP BY module_id
),
shown AS (
  SELECT module_id, color, allocation_index, 'temp' AS allocation_kind, value_id, size_bytes
  FROM temp_values
  WHERE module_id {_SHOWN} AND size_bytes > 0 AND start_time <= end_time
    AND start_time <= coalesce(
      (SELECT schedule_length FROM modules WHERE modules.module_id = temp_values.module_id), 0
    )
  UNION ALL
  SELECT module_id, color, allocation_index, allocation_kind, value_id, held_bytes
  FROM peak_values
  WHERE module_id {_SHOWN} AND allocation_kind <> 'temp' AND held_bytes > 0
)
SELECT
  shown.module_id,
  shown.color,
  shown.allocation_index,
  shown.allocation_kind,
  shown.value_id,
  shown.size_bytes,
  coalesce(held.offset_bytes, 0),
  CASE shown.allocation_kind WHEN 'temp' THEN held.start_time END,
  CASE shown.allocation_kind WHEN 'temp' THEN held.end_time END,
  held.padding_bytes,
  held.instruction_name,
  nullif(held.shape_index, '{{}}'),
  coalesce(held.is_phi, FALSE),
  held.shape,
  held.dtype,
  held.opcode,
  coalesce(
    origins.relation || origins.op_path, held.op_path, 'for ' || named_uses.op_path,
    '(' || shown.allocation_kind || ')'
  ) AS scope,
  coalesce(
    origins.relation || origins.stripped_op_path, held.stripped_op_path,
    'for ' || named_uses.stripped_op_path, '(' || shown.allocation_kind || ')'
  ) AS op_path,
  coalesce(
    origins.relation || origins.own_source, held.own_source,
    'for ' || named_uses.own_source_file || ':' || named_uses.own_source_line,
    origins.relation || origins.library_source, held.library_source,
    'for ' || named_uses.library_source, '(' || shown.allocation_kind || ')'
  ) AS source_line,
  op_name_categories.category,
  CASE
    WHEN whole_times.module_ns IS NULL THEN NULL
    WHEN coalesce(makers.recompute_ns, run_times.run_ns) IS NULL THEN 'not timed'
    WHEN coalesce(makers.recompute_ns, run_times.run_ns) >= 0.1 * whole_times.module_ns
      THEN '10 % of a run or more'
    WHEN coalesce(makers.recompute_ns, run_times.run_ns) >= 0.03 * whole_times.module_ns
      THEN '3 to 10 % of a run'
    WHEN coalesce(makers.recompute_ns, run_times.run_ns) >= 0.01 * whole_times.module_ns
      THEN '1 to 3 % of a run'
    ELSE 'less than 1 % of a run'
  END AS time_share,
  origins.relation,
  origins.stack_frame_id,
  origins.source_file,
  origins.source_line,
  origins.own_source_file IS NOT NULL,
  held.stack_frame_id,
  held.source_file,
  held.source_line,
  held.own_source_file IS NOT NULL,
  named_uses.stack_frame_id,
  named_uses.source_file,
  named_uses.source_line,
  named_uses.own_source_file IS NOT NULL
FROM shown
LEFT JOIN value_details AS held
  ON held.module_id = shown.module_id
  AND held.value_id = shown.value_id
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = shown.module_id
  AND origins.value_id = shown.value_id
  AND shown.allocation_kind IN ('temp', 'output')
LEFT JOIN named_uses
  ON named_uses.module_id = shown.module_id
  AND named_uses.value_id = shown.value_id
LEFT JOIN value_origins AS carried
  ON carried.module_id = shown.module_id
  AND carried.value_id = shown.value_id
LEFT JOIN op_name_categories
  ON op_name_categories.module_id = shown.module_id
  AND op_name_categories.op_name = coalesce(carried.op_name, held.op_name)
LEFT JOIN whole_times ON whole_times.module_id = shown.module_id
LEFT JOIN run_times
  ON run_times.module_id = shown.module_id
  AND run_times.instruction_name = held.instruction_name
LEFT JOIN recompute_times AS makers
  ON makers.module_id = shown.module_id
  AND makers.color = shown.color
  AND makers.what = 'value'
  AND makers.value_id = shown.value_id
ORDER BY
  shown.module_id, shown.color, shown.allocation_kind <> 'temp',
  CASE shown.allocation_kind WHEN 'temp' THEN held.start_time END, shown.allocation_index,
  held.offset_bytes, shown.size_bytes DESC, shown.value_id, held.opcode NULLS LAST
"""
ARENAS = f"""
SELECT module_id, color, allocation_index, size_bytes
FROM allocations
WHERE module_id {_SHOWN} AND kind = 'temp'
ORDER BY module_id, color, allocation_index
"""
FRAMES = f"""
SELECT
  module_id, stack_frame_id, parent_frame_id, source_file, function_name, source_line,
  coalesce(own_frame_id = stack_frame_id, FALSE)
FROM stack_frames
WHERE module_id {_SHOWN}
"""
USES = f"""
WITH users AS (
  SELECT DISTINCT module_id, value_id, instruction_name
  FROM uses
  WHERE module_id {_SHOWN}
)
SELECT
  users.module_id,
  users.value_id,
  list_sort(list(coalesce(instructions.program_order, -1)))
FROM users
LEFT JOIN instructions
  ON instructions.module_id = users.module_id
  AND instructions.instruction_name = users.instruction_name
GROUP BY users.module_id, users.value_id
"""
STEPS = f"""
SELECT module_id, program_order, instruction_name
FROM instructions
WHERE module_id {_SHOWN} AND program_order IS NOT NULL
ORDER BY module_id, program_order, instruction_name
"""
ORIGINS = f"""
SELECT
  origins.module_id,
  origins.value_id,
  origins.origin_kind,
  coalesce(origins.own_source, origins.library_source),
  origins.loop_instruction_name,
  coalesce(
    own_frames.source_file || ':' || own_frames.source_line,
    loops.source_file || ':' || loops.source_line
  ),
  CASE
    WHEN split_part(origins.slice_shape, '[', 1) = split_part(carriers.shape, '[', 1)
      THEN origins.slice_shape
  END,
  origins.slice_bytes,
  origins.slice_count,
  origins.trip_count,
  origins.is_residual,
  origins.is_layer_input,
  origins.is_exact
FROM value_origin_details AS origins
LEFT JOIN "values" AS carriers
  ON carriers.module_id = origins.module_id
  AND carriers.value_id = origins.value_id
LEFT JOIN instructions AS loops
  ON loops.module_id = origins.module_id
  AND loops.instruction_name = origins.loop_instruction_name
LEFT JOIN stack_frames
  ON stack_frames.module_id = loops.module_id
  AND stack_frames.stack_frame_id = loops.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id
WHERE origins.module_id {_SHOWN}
"""
PEAKS = f"""
SELECT peaks.module_id, peaks.color, peaks.peak_time,
  memory_sums.fixed_bytes + peaks.occupied_temp_bytes, peaks.valley_bytes + memory_sums.fixed_bytes
FROM peaks
JOIN memory_sums ON memory_sums.module_id = peaks.module_id AND memory_sums.color = peaks.color
WHERE peaks.module_id {_SHOWN}
ORDER BY peaks.module_id, peaks.color, peaks.peak_ordinal
"""
SAVINGS = f"""
SELECT
  module_id, color, what, name, value_id, held_bytes, saving_bytes, half_saving_bytes,
  peak_time_without, low_saving_bytes, saving_form, kept_name
FROM peak_savings
WHERE module_id {_SHOWN}
ORDER BY module_id, color, what, held_bytes DESC, name, value_id
"""
POSITIONS = f"""
WITH merged AS (
  SELECT DISTINCT module_id, allocation_index, offset_bytes, size_bytes
  FROM "values"
  WHERE module_id {_SHOWN} AND is_phi
)
SELECT positions.module_id, positions.value_id, positions.shape_index, positions.is_defining
FROM positions
JOIN "values"
  ON "values".module_id = positions.module_id
  AND "values".value_id = positions.value_id
JOIN merged
  ON merged.module_id = "values".module_id
  AND merged.allocation_index = "values".allocation_index
  AND merged.offset_bytes = "values".offset_bytes
  AND merged.size_bytes = "values".size_bytes
ORDER BY positions.module_id, positions.value_id, positions.position_ordinal
"""
SQL = "\n".join((VALUES, ARENAS, FRAMES, USES, STEPS, ORIGINS, PEAKS, SAVINGS, POSITIONS))
"""All SQL executed here."""


class Place(NamedTuple):
    """The place of an instruction in the Python code; all but `is_own` None if unknown."""

    stack_frame_id: int | None
    source_file: str | None
    source_line: int | None
    is_own: bool
    """Whether a line of the user's code is known."""


class Fact(NamedTuple):
    """A value of a temp allocation with its life, or one that represents another allocation."""

    allocation_index: int
    allocation_kind: str
    value_id: int | None
    """None for an allocation without values."""
    size_bytes: int
    """Size of the value; of the whole allocation if it is not temp."""
    offset_bytes: int
    start_time: int | None
    """First live instant [program order]; None for what is held for the whole run."""
    end_time: int | None
    """Last live instant, inclusive."""
    padding_bytes: int | None
    instruction_name: str | None
    shape_index: str | None
    """None for {}."""
    is_phi: bool
    shape: str | None
    dtype: str | None
    opcode: str | None
    scope: str
    """Scope path; like the next two, prefixed with its relation; if unknown, '(kind)'."""
    op_path: str
    """Key of peak-by-op."""
    source_line: str
    """Key of peak-by-source-line."""
    category: str | None
    """Key of peak-by-category, with allocation_kind."""
    time_share: str | None
    """Share of a run that what makes it takes, as a range; None for a module without times."""
    relation: str
    """'saved ', 'for ' and so on, if it is not made by the line itself."""
    place: Place
    """Place of what it is attributed to."""


@dataclass
class Facts:
    """The database's data of some modules, by module or by module and memory space."""

    values: dict[tuple[int, int], list[Fact]] = field(default_factory=lambda: defaultdict(list))
    arenas: dict[tuple[int, int], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    frames: dict[int, dict[int, tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(dict))
    """By number: parent, file, function, line, whether it is the user's own."""
    uses: dict[int, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    """By value: program order of its users, ascending; -1 where unknown."""
    steps: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    origins: dict[int, dict[int, tuple[Any, ...]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By value: the columns of ORIGINS after value_id."""
    peaks: dict[tuple[int, int], list[tuple[Any, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Instant, bytes including fixed ones, lowest bytes on the way to a higher peak."""
    savings: dict[tuple[int, int], list[tuple[Any, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The columns of SAVINGS after the memory space."""
    positions: dict[int, dict[int, list[tuple[str, bool]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """For values at a phi's place: indexes in tuples, and whether it is defined there."""


def facts(con: duckdb.DuckDBPyConnection, module_ids: Sequence[int]) -> Facts:
    """Return the rows of these modules; others are not read where there are many."""
    if not module_ids or 2 * len(module_ids) > narrowing.module_count(con):
        return _facts(con, module_ids)
    chosen = f"SELECT unnest({list(module_ids)}::BIGINT[]) AS module_id"
    tables = definitions.module_tables(SQL)
    with narrowing.to_modules(con, tables, chosen, is_asked_often=True):
        return _facts(con, module_ids)


def _facts(con: duckdb.DuckDBPyConnection, module_ids: Sequence[int]) -> Facts:
    shown = ",".join(map(str, module_ids))

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return execute.execute_with(con, sql, {"shown": shown}, "report").rows

    known = Facts()
    if not module_ids:
        return known
    for module_id, color, *columns in rows(VALUES):
        of_module = known.values[module_id, color]
        fact = _fact(columns)
        # In a damaged dump a name may have two instructions, and so a value two rows.
        if not of_module or of_module[-1][:3] != fact[:3]:
            of_module.append(fact)
    for module_id, color, *arena in rows(ARENAS):
        known.arenas[module_id, color].append((arena[0], arena[1]))
    for module_id, number, *frame in rows(FRAMES):
        known.frames[module_id][number] = tuple(frame)
    for module_id, value_id, users in rows(USES):
        known.uses[module_id][value_id] = users
    for module_id, time, name in rows(STEPS):
        known.steps[module_id].append((time, name))
    for module_id, value_id, *origin in rows(ORIGINS):
        known.origins[module_id][value_id] = tuple(origin)
    for module_id, color, *peak in rows(PEAKS):
        known.peaks[module_id, color].append(tuple(peak))
    for module_id, color, *saving in rows(SAVINGS):
        known.savings[module_id, color].append(tuple(saving))
    for module_id, value_id, index, is_defining in rows(POSITIONS):
        known.positions[module_id][value_id].append((index, is_defining))
    return known


_ATTRIBUTES = len(Fact._fields) - 2
_RELATION = _ATTRIBUTES
"""Index of the relation in the columns of VALUES after the memory space; three places follow."""


def _fact(columns: Sequence[Any]) -> Fact:
    relation = columns[_RELATION]
    first = _RELATION + 1
    origin, own, use = (Place(*columns[at : at + 4]) for at in (first, first + 4, first + 8))
    places = [] if relation is None else [(relation, origin)]
    places += [("", own), ("for ", use)]
    # Lines are attributed in the same way: a line of the user's code before any of a library.
    chosen = next((pair for pair in places if pair[1].is_own), None) or next(
        (pair for pair in places if pair[1].stack_frame_id is not None or pair[1].source_file),
        ("", own),
    )
    return Fact(*columns[:_ATTRIBUTES], *chosen)
