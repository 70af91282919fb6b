"""The values of one function, each with the Python frames that it is attributed to.

A value is attributed as in `peak-by-stack`: to what made the data that a loop carries, else to the
instruction that defines it, else to its use. Library code is left out there; here that is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.database.engine import duckdb
from bufdb.export.shown import Function

VALUES = """
SELECT
  held.value_id,
  held.allocation_index,
  coalesce(held.allocation_kind, 'kind unknown') AS allocation_kind,
  held.offset_bytes,
  held.size_bytes,
  held.start_time,
  held.end_time,
  CASE held.shape_index
    WHEN '{}' THEN held.instruction_name
    ELSE held.instruction_name || held.shape_index
  END AS name,
  held.bare_shape,
  coalesce(held.opcode, ''),
  coalesce(
    origins.relation || origins.op_path, held.op_path, 'for ' || named_uses.op_path, ''
  ) AS op_path,
  origins.relation,
  origins.stack_frame_id,
  origins.source_file,
  origins.source_line,
  held.stack_frame_id,
  held.source_file,
  held.source_line,
  named_uses.stack_frame_id,
  named_uses.source_file,
  named_uses.source_line
FROM value_details AS held
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = held.module_id
  AND origins.value_id = held.value_id
  AND held.allocation_kind IN ('temp', 'output')
LEFT JOIN named_uses
  ON named_uses.module_id = held.module_id
  AND named_uses.value_id = held.value_id
WHERE held.module_id = $module_id
  AND held.color = $color
ORDER BY held.value_id
"""
_AT_PEAK = VALUES.replace(
    "ORDER BY",
    """  AND held.value_id IN (
    SELECT value_id
    FROM peak_values
    WHERE module_id = $module_id AND color = $color AND held_bytes > 0
  )
ORDER BY""",
)
"""Only the values that hold bytes at the peak."""
HELD = """
SELECT value_id, coalesce(allocation_kind, 'kind unknown') AS allocation_kind, held_bytes
FROM peak_values
WHERE module_id = $module_id
  AND color = $color
  AND held_bytes > 0
ORDER BY held_bytes DESC, allocation_index, value_id
"""
FRAMES = """
SELECT
  stack_frame_id,
  parent_frame_id,
  coalesce(function_name, '?'),
  coalesce(source_file, '?'),
  coalesce(source_line, 0),
  is_library_path(coalesce(source_file, ''))
  OR coalesce(source_file IS NOT NULL AND own_frame_id <> stack_frame_id, FALSE)
FROM stack_frames
WHERE module_id = $module_id
"""
IS_LIBRARY = "SELECT is_library_path($path)"
RELATIONS = {"saved ": "(saved by a loop)", "for ": "(made by XLA for it)"}
"""Innermost frame of values that the line itself does not make."""


@dataclass(frozen=True)
class Frame:
    """A frame of a Python call stack, or a substitute for one in parentheses."""

    name: str
    """Qualified name of the function; '' if unknown."""
    file: str = ""
    line: int = 0
    """0 if unknown."""

    @property
    def label(self) -> str:
        """The frame on one line: train.py:53 train_step."""
        if not self.file:
            return self.name
        place = f"{self.file.rpartition('/')[2]}:{self.line or '?'}"
        return f"{place} {self.name}" if self.name else place


@dataclass(frozen=True)
class HloValue:
    """A value of a module."""

    value_id: int
    allocation_index: int
    allocation_kind: str
    offset_bytes: int
    size_bytes: int
    start_time: int | None
    """First live instant [program order]; None without a live range."""
    end_time: int | None
    """Last live instant, inclusive [program order]; None as start_time."""
    name: str
    shape: str
    opcode: str
    """'' if unknown."""
    op_path: str
    """What it is attributed to, prefixed with the relation to it; '' if unknown."""
    frames: tuple[Frame, ...]
    """Innermost first; if none is known, the kind of allocation in parentheses."""


@dataclass(frozen=True)
class Held:
    """A value or allocation that holds bytes at the peak."""

    value: HloValue | None
    """None for an allocation without values."""
    allocation_kind: str
    held_bytes: int
    """Each byte counts once: a function's sum is its peak [bytes]."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The same as HloValue.frames."""
        if self.value is None:
            return (Frame(f"({self.allocation_kind})"),)
        return self.value.frames


def values(
    con: duckdb.DuckDBPyConnection,
    function: Function,
    *,
    all_frames: bool = False,
    at_peak: bool = False,
) -> list[HloValue]:
    """Return the values of a function in its memory space, in order of their numbers.

    Args:
        con: the database.
        function: the function.
        all_frames: include frames of library code.
        at_peak: only values that hold bytes at the peak.
    """
    stacks = _Stacks(con, function.module_id, all_frames)
    parameters = {"module_id": function.module_id, "color": function.color}
    hlo_values = []
    for row in con.execute(_AT_PEAK if at_peak else VALUES, parameters).fetchall():
        kind, op_path, relation = row[2], row[10], row[11]
        frames = stacks.attributed(relation, row[12:15], row[15:18], row[18:21])
        if not frames:
            frames = (Frame(op_path), Frame(f"({kind})")) if op_path else (Frame(f"({kind})"),)
        facts: list[Any] = [*row[:11], frames]
        hlo_values.append(HloValue(*facts))
    return hlo_values


def held(
    con: duckdb.DuckDBPyConnection, function: Function, *, all_frames: bool = False
) -> list[Held]:
    """Return the holders of a function's peak, the most bytes first; arguments as for `values`."""
    hlo_values = values(con, function, all_frames=all_frames, at_peak=True)
    by_id = {value.value_id: value for value in hlo_values}
    rows = con.execute(HELD, {"module_id": function.module_id, "color": function.color}).fetchall()
    return [Held(by_id.get(value_id), kind, size) for value_id, kind, size in rows]


Place = tuple[int | None, str | None, int | None]
"""Stack frame, source file and line of an instruction."""


class _Stacks:
    """Call stacks of a module, each walked once."""

    def __init__(self, con: duckdb.DuckDBPyConnection, module_id: int, all_frames: bool) -> None:
        self.con = con
        self.all_frames = all_frames
        rows = con.execute(FRAMES, {"module_id": module_id}).fetchall()
        self.frames = {row[0]: row[1:] for row in rows}
        self.walked: dict[Place, tuple[Frame, ...]] = {}

    def attributed(
        self, relation: str | None, origin: Place, own: Place, use: Place
    ) -> tuple[Frame, ...]:
        """Return the stack of the first of these places that has one, innermost frame first."""
        places = [] if relation is None else [(relation, origin)]
        for prefix, place in [*places, ("", own), ("for ", use)]:
            frames = self._walk(place)
            if frames:
                mark = RELATIONS.get(prefix, f"({prefix}it)")
                return (Frame(mark), *frames) if prefix else frames
        return ()

    def _walk(self, place: Place) -> tuple[Frame, ...]:
        if place not in self.walked:
            frame_id, file, line = place
            frames = tuple(self._above(frame_id))
            if not self.all_frames:
                frames = tuple(without_rounds(frames))
            if not frames and file is not None and self._is_wanted(file):
                frames = (Frame("", file, line or 0),)
            self.walked[place] = frames
        return self.walked[place]

    def _above(self, frame_id: int | None) -> Iterator[Frame]:
        seen: set[int] = set()  # a damaged dump may have a cycle
        while frame_id is not None and frame_id in self.frames and frame_id not in seen:
            seen.add(frame_id)
            frame_id, name, file, line, is_library = self.frames[frame_id]
            if self.all_frames or not is_library:
                yield Frame(name, file, line)

    def _is_wanted(self, file: str) -> bool:
        if self.all_frames:
            return True
        ((is_library,),) = self.con.execute(IS_LIBRARY, {"path": file}).fetchall()
        return not is_library


def without_rounds(frames: Sequence[Frame]) -> list[Frame]:
    """Return a stack (innermost frame first) with only the outermost of repeated frame sequences.

    flax's scan traces a layer several times, each time with the calls leading to it.
    """
    is_again = [False] * len(frames)
    for period in range(1, len(frames) // 2 + 1):
        series = 0
        for place in range(len(frames) - period + 1):
            if frames[place : place + 1] == frames[place + period : place + period + 1]:
                series += 1
                continue
            whole = series - series % period
            is_again[place - whole : place] = [True] * whole
            series = 0
    return [frame for frame, again in zip(frames, is_again, strict=True) if not again]
