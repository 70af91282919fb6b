"""A serialized module as the sections of a text dump."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools
from bufdb.columnar.sets import distinct
from bufdb.proto import reader
from bufdb.proto.attributes import index_text
from bufdb.proto.graph import ASYNC, Module
from bufdb.proto.hlo_text import Printer, header
from bufdb.proto.places import (
    Assignment,
    Place,
    Slices,
    Values,
    definitions,
    find_shown,
    read_assignment,
)
from bufdb.proto.reader import UnreadableProto
from bufdb.proto.shapes import Index, part_of, text_of
from bufdb.proto.times import (
    Live,
    Ranges,
    Uses,
    exact,
    flatten,
    instant_of_most,
    printed_peak,
    trace_faults,
    uses_of,
)

# --------------------------------------------------------------------------------------------------
# The bodies of fusions that are asked for: most instructions of a module are in the others.
#
# Asked for are the operations that it takes to make a large value again (`recompute_costs`), also
# at the source of moves of data, in modules with loops the way back from what loops carry
# (`value_origins`), which can lead through any, products (`instruction_costs`), and what touches a
# part of an array (`instruction_executions`).

_LARGE_PART = 100
"""As in bufdb.rows.peak_savings: a value is large from this part of the peak on."""
_WORK = re.compile(
    rb"\x12(?:\x03dot|\x0aragged-dot|\x0bconvolution|\x0bcustom-call|"
    rb"\x05slice|\x06gather|\x07scatter|\x0ddynamic-slice|\x14dynamic-update-slice)"
)
"""An opcode, as the field 2 of an instruction, of what computes products or touches a part."""
_BEHIND_MOVES = 3
"""Limit on the fusions in a row that only move data."""
_PASSING = frozenset(
    (
        *("bitcast", "broadcast", "concatenate", "copy", "copy-done", "copy-start", "pad"),
        *("dynamic-slice", "dynamic-update-slice", "gather", "get-tuple-element", "opt-barrier"),
        *("reshape", "reverse", "slice", "transpose", "tuple"),
    )
)


def needed_fusions(
    m: Module, values: Values, ranges: Live | None, assignment: Assignment
) -> list[int]:
    """Return fused computations, in the order of the proto; all if large values are not known."""
    apart = set(m.order)
    fused = [c for c in m.computations if c not in apart]
    if ranges is None or "while" in m.opcode:
        return fused
    wanted = {c for c in fused if _WORK.search(m.computations[c])}
    seen: set[int] = set()
    level = [values.places[v][0] for v in _large(ranges, assignment, values.assigned)]
    for _ in range(1 + _BEHIND_MOVES):
        level = _after(m, level, seen, wanted)
    return [c for c in fused if c in wanted]


def _after(m: Module, level: list[int], seen: set[int], wanted: set[int]) -> list[int]:
    """Mark what the fusions of a level call as wanted; return the operands of those fusions."""
    operands: list[int] = []
    while level:
        i = level.pop()
        if i in seen:
            continue
        seen.add(i)
        if m.opcode[i] == "fusion":
            wanted.update(m.instructions.called.get(i, ()))
            operands += m.operands[i]
        elif m.opcode[i] in _PASSING:
            level += m.operands[i]
    return operands


def _large(ranges: Live, assignment: Assignment, slices: Slices) -> list[int]:
    """Return values with a hundredth of the peak of their memory space, or a little less.

    The peak is at least what is occupied at the instant at which the sizes of live values add up
    to the most.
    """
    allocations, starts, ends = assignment.allocations, ranges.start, ranges.end
    kinds = ("is_entry_computation_parameter", "is_constant", "maybe_live_out")
    is_fixed = np.any([allocations[kind] != 0 for kind in kinds], axis=0)
    is_temp = ~is_fixed & (allocations["is_thread_local"] == 0)
    is_placed = is_temp[slices.allocation] & (starts[slices.value] >= 0)
    colors = allocations["color"]
    large: list[int] = []
    for color in distinct(colors[is_temp]):
        rows = np.flatnonzero(is_placed & (colors[slices.allocation] == color))
        v, size = slices.value[rows], slices.size[rows]
        instant = instant_of_most(starts[v], ends[v] + 1, exact(size.tolist()))
        live = rows[(starts[v] <= instant) & (instant <= ends[v])]
        spans = zip(
            slices.allocation[live].tolist(),
            slices.offset[live].tolist(),
            slices.size[live].tolist(),
            strict=True,
        )
        occupied = _union(sorted((a, offset, offset + bytes) for a, offset, bytes in spans))
        fixed = sum(allocations["size"][is_fixed & (colors == color)].tolist())
        large += v[size >= (fixed + occupied) // _LARGE_PART].tolist()
    return large


def _union(spans: list[tuple[int, int, int]]) -> int:
    """Return the bytes in sorted spans of allocations; bytes of several spans count once."""
    total, at, reached = 0, -1, 0
    for number, start, stop in spans:
        if number != at:
            at, reached = number, start
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


# --------------------------------------------------------------------------------------------------
# A serialized HloProto as the sections of a text dump: what is given, and what follows from it.
#
# Rows of the buffer sections are emitted as arrays, without the lines that XLA would write, which
# would only be read again. The HLO text is written, for it is stored and searched as text; each
# instruction is described once at the most.

BUFFERS, VALUES, RANGES = "buffer_assignment", "values", "live_range"
KINDS = (BUFFERS, VALUES, RANGES, "hlo")
"""Sections by the kind of file that holds each in a text dump."""
Table = dict[str, Any]
"""Columns as arrays; those of strings are places in `Sections.strings`, -1 for none."""


@dataclass
class Sections:
    """The sections of one module; those that cannot be derived are absent."""

    tables: dict[str, dict[str, Table]] = field(default_factory=dict)
    """By kind, its tables: allocations and values; heads, positions and uses; sequence, ranges and
    peak."""
    strings: list[str] = field(default_factory=list)
    descriptions: dict[int, str] = field(default_factory=dict)
    """Instructions described with their values, by the row of a value in heads."""
    total_bytes: int = 0
    schedule_length: int = 0
    peak_time: int = 0
    """The instant that XLA would call the peak."""
    hlo: bytes | None = None
    """The HLO text."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """(severity, code, message) of what the proto lacks or has wrong."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that are there."""
        return frozenset(self.tables) | (frozenset() if self.hlo is None else {"hlo"})


def read(data: bytes, wanted: frozenset[str] = frozenset(KINDS)) -> Sections:
    """Return the sections of a dump that correspond to a serialized module.

    Args:
        data: a HloProto or a HloSnapshot, compressed or not.
        wanted: the kinds that are asked for.

    Raises:
        UnreadableProto: the bytes are no module, or the package to read them is missing.
    """
    with _refusing_damage():
        proto = reader.read(data, "HloProtoParts")
        has_assignment = proto.HasField("buffer_assignment")
        assignment = read_assignment(proto.buffer_assignment) if has_assignment else None
        with reader.resolving():
            module = Module(proto)
        return _SectionBuilder(module, assignment).sections(wanted)


def instructions(data: bytes) -> bytes:
    """Return a serialized module's instructions outside fusions, each as a line of HLO text.

    Raises:
        UnreadableProto: the bytes are no module, or the package to read them is missing.
    """
    with _refusing_damage():
        with reader.resolving():
            module = Module(reader.read(data, "HloProtoParts"))
        return _text(f"  {line}" for line in Printer(module).lines)


def hlo_text(data: bytes) -> bytes:
    """Return a serialized module as HLO text, with the tables of stack frames.

    Raises:
        UnreadableProto: the bytes are no module, or the package to read them is missing.
    """
    with _refusing_damage():
        with reader.resolving():
            module = Module(reader.read(data, "HloProtoParts"))
        fused = needed_fusions(module, Values(), None, Assignment())
        return _text([*header(module), *Printer(module).hlo(fused)])


@contextlib.contextmanager
def _refusing_damage() -> Iterator[None]:
    """Raise UnreadableProto for what makes no sense in a proto, or not to bufdb.

    Only what is known to be damage is called so; other errors of the reader are quoted.
    """
    was_collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of small objects, none of them in a cycle
    try:
        yield
    except RecursionError as error:
        raise UnreadableProto("computations in it are nested too deeply, or recursively") from error
    except OverflowError as error:
        raise UnreadableProto("it has sizes of more than 64 bits") from error
    except (LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UnreadableProto(f"bufdb does not understand it ({why})") from error
    finally:
        if was_collecting:
            gc.enable()


class _Strings:
    """The strings of one module; the first are the names of its instructions."""

    def __init__(self, module: Module) -> None:
        self.tuples = module.tuples
        self.every = list(module.names)
        self._codes: dict[str, int] = {}
        self._indexes: dict[Index, int] = {}

    def code(self, text: str) -> int:
        """Return the place of a string among all."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.every)
            self.every.append(text)
        return code

    def index(self, index: Index) -> int:
        """Return the place of an index as it is printed."""
        code = self._indexes.get(index)
        if code is None:
            code = self._indexes[index] = self.code(index_text(index))
        return code

    def at(self, places: Sequence[Place]) -> Any:
        """Return the places of indexes, -1 where none is printed: the result is no tuple."""
        indexes = np.full(len(places), -1)
        in_tuples = [row for row, (i, _) in enumerate(places) if i in self.tuples]
        indexes[in_tuples] = [self.index(places[row][1]) for row in in_tuples]
        return indexes


class _SectionBuilder:
    """The sections of one module."""

    def __init__(self, module: Module, assignment: Assignment | None) -> None:
        self.module, self.assignment = module, assignment
        self.printer = Printer(module)
        self.strings = _Strings(module)
        self.result = Sections(strings=self.strings.every)

    def sections(self, wanted: frozenset[str]) -> Sections:
        """Return those that are wanted, as far as they are known."""
        m, result, assignment = self.module, self.result, self.assignment
        if assignment is None:
            if "hlo" in wanted:
                result.hlo = self._hlo(Values(), None, Assignment())
            return result
        with reader.resolving():
            values = definitions(m, assignment)
        shown = find_shown(m, values)
        self.columns = self._columns(values)
        if BUFFERS in wanted:
            result.tables[BUFFERS] = self._allocations(assignment, values, shown)
        uses = uses_of(m, values, shown)
        if VALUES in wanted:
            result.tables[VALUES] = self._used(assignment, values, shown, uses)
            self._describe(values, is_told="hlo" not in wanted)
        if wanted & {RANGES, "hlo"}:
            program = flatten(m)
            ranges = self._ranges(assignment, Ranges(m, values, program), shown, uses)
            if RANGES not in wanted:
                result.problems.clear()
            elif ranges is not None:
                result.tables[RANGES] = self._live(values, program.sequence, ranges)
            if "hlo" in wanted:
                result.hlo = self._hlo(values, ranges, assignment)
        return result

    def _hlo(self, values: Values, ranges: Live | None, assignment: Assignment) -> bytes:
        fused = needed_fusions(self.module, values, ranges, assignment)
        return _text([*header(self.module), *self.printer.hlo(fused)])

    def _columns(self, values: Values) -> Table:
        """Return how each value is named wherever it is mentioned."""
        phi = np.zeros(len(values.numbers), np.bool_)
        phi[list(values.phi)] = True
        if min(values.numbers, default=0) < 0:
            raise UnreadableProto("it is damaged: a value has a number below 0")
        return {
            "value_id": _ints(values.numbers),
            "instruction_name": values.instruction,
            "shape_index": self.strings.at(values.places),
            "is_phi": phi,
            "color": _ints(values.colors),
        }

    def _allocations(
        self, assignment: Assignment, values: Values, shown: dict[int, list[Place]]
    ) -> dict[str, Table]:
        m, places = self.module, values.places
        result = m.root[m.entry], ()
        results = {v for v, more in shown.items() if result in more}
        results.add(values.defined.get(result, -1))
        allocations = assignment.allocations
        holds = np.full(len(allocations["index"]), -1)
        slices = values.assigned
        rows = slices.allocation[np.isin(slices.value, list(results))]
        if len(rows):
            holds[rows] = self.strings.code(text_of(m.shape(result[0]), with_layout=False))
        table: Table = {
            "allocation_index": allocations["index"],
            "size_bytes": allocations["size"],
            "color": allocations["color"],
            **self._parameters(assignment),
            "output_shape": holds,
            "is_constant": allocations["is_constant"] != 0,
            "is_thread_local": allocations["is_thread_local"] != 0,
            "is_maybe_live_out": allocations["maybe_live_out"] != 0,
        }
        if min(table["allocation_index"].min(initial=0), table["color"].min(initial=0)) < 0:
            raise UnreadableProto("it is damaged: an allocation has a number below 0")
        kinds = ("is_constant", "is_thread_local", "is_maybe_live_out")
        is_plain = (table["parameter_number"] < 0) & (table["output_shape"] < 0)
        table["is_preallocated_temp"] = is_plain & ~np.any([table[kind] for kind in kinds], axis=0)
        order = np.lexsort((slices.offset, slices.size, slices.value, slices.allocation))
        inside = slices.value[order]
        codes = {text: self.strings.code(text) for text in set(self.printer.shapes)}
        whole = [codes[text] for text in self.printer.shapes]
        placed = {name: column[inside] for name, column in self.columns.items()}
        placed["size_bytes"] = slices.size[order]
        placed["offset_bytes"] = slices.offset[order]
        shapes = [
            self.strings.code(text_of(m.part(i, index))) if index else whole[i]
            for i, index in places
        ]
        placed["shape"] = _ints(shapes)[inside]
        placed["allocation_index"] = table["allocation_index"][slices.allocation[order]]
        return {"allocations": table, "values": placed}

    def _parameters(self, assignment: Assignment) -> Table:
        """Return which parameter, and which part of it, each allocation holds."""
        m, allocations = self.module, assignment.allocations
        if allocations["parameter_number"].min(initial=0) < 0:
            raise UnreadableProto("it is damaged: a parameter has a number below 0")
        by_number = {
            m.instructions.parameter_numbers[i]: i
            for i in m.members[m.entry]
            if m.opcode[i] == "parameter"
        }
        holds = allocations["is_entry_computation_parameter"] != 0
        numbers = np.where(holds, allocations["parameter_number"], -1)
        shapes, indexes = np.full(len(holds), -1), np.full(len(holds), -1)
        known: dict[tuple[bytes, Index], int] = {}
        for row in np.flatnonzero(holds).tolist():
            index = assignment.parameter_indexes[row]
            shape = m.shapes[by_number[int(numbers[row])]]
            if (shape, index) not in known:
                text = text_of(part_of(m.shape_of(shape), index), with_layout=False)
                known[shape, index] = self.strings.code(text)
            shapes[row] = known[shape, index]
            indexes[row] = self.strings.index(index)
        columns = ("parameter_number", "parameter_shape", "parameter_shape_index")
        return dict(zip(columns, (numbers, shapes, indexes), strict=True))

    def _used(
        self,
        assignment: Assignment,
        values: Values,
        shown: dict[int, list[Place]],
        uses: Uses,
    ) -> dict[str, Table]:
        """Return the used values: those that are assigned, with their places and their uses."""
        every = np.zeros(len(values.numbers), np.bool_)
        every[values.assigned.value] = True
        listed = np.flatnonzero(every).tolist()
        # Modulo 2^64, as XLA prints it.
        self.result.total_bytes = int(assignment.allocations["size"].sum())
        heads = {name: column[every] for name, column in self.columns.items()}
        places = [
            (row, ordinal, i, index)
            for row, v in enumerate(listed)
            if v in shown
            for ordinal, (i, index) in enumerate(shown[v], 1)
        ]
        # Where each is defined, then where else it shows.
        owners = np.concatenate([np.arange(len(listed)), _ints([row for row, _, _, _ in places])])
        order = np.argsort(owners, kind="stable")
        more = _ints([i for _, _, i, _ in places])
        at = self.strings.at([(i, index) for _, _, i, index in places])
        ordinals = _ints([ordinal for _, ordinal, _, _ in places])
        positions = {
            "instruction_name": np.concatenate([heads["instruction_name"], more])[order],
            "shape_index": np.concatenate([heads["shape_index"], at])[order],
            "ordinal": np.concatenate([np.zeros(len(listed), np.int64), ordinals])[order],
            "head": owners[order],
        }
        return {
            "heads": heads,
            "positions": positions,
            "uses": self._uses(uses, every),
        }

    def _uses(self, uses: Uses, is_listed: Bools) -> Table:
        """Return the uses of used values."""
        uses = uses.take(is_listed[uses.value])
        heads = (np.cumsum(is_listed) - 1)[uses.value]
        totals = np.bincount(heads, minlength=int(is_listed.sum()))
        firsts = np.cumsum(totals) - totals
        return {
            "instruction_name": uses.user,
            "operand_number": uses.operand_number,
            "operand_index": self.strings.at(uses.places)[uses.place],
            "ordinal": np.arange(len(heads)) - firsts[heads],
            "head": heads,
        }

    def _describe(self, values: Values, *, is_told: bool) -> None:
        """Describe the instructions that define used values, each once, if that is wanted.

        If the HLO text is wanted too, it has everything except the short form of asynchronous ones.
        """
        m = self.module
        if not is_told and not any(word in ASYNC for word in set(m.opcode)):
            return
        names = self.result.tables[VALUES]["heads"]["instruction_name"]
        described: set[int] = set()
        for row, i in enumerate(names.tolist()):
            if i not in described and (is_told or m.opcode[i] in ASYNC):
                described.add(i)
                self.result.descriptions[row] = self.printer.description(i)

    def _ranges(
        self,
        assignment: Assignment,
        derived: Ranges,
        shown: dict[int, list[Place]],
        uses: Uses,
    ) -> Live | None:
        """Return live ranges, checked against the heap simulator's record; None if unscheduled."""
        problems = self.result.problems
        if self.module.entry not in self.module.schedule:
            message = "live ranges are unknown: the proto has no schedule"
            problems.append(("data_loss", "missing_schedule", message))
            return None
        ranges = derived.of(shown, uses, assignment)
        wrong, events = trace_faults(assignment, derived.values, ranges)
        if wrong:
            message = (
                f"{wrong} of {events} events of the heap simulator contradict the derived live "
                "ranges"
            )
            problems.append(("error", "live_ranges_against_trace", message))
        if derived.program.wrapped and not self.module.is_tiled and not derived.starts_late:
            message = (
                "values inside asynchronous computations may start some instants later: the proto "
                "does not show its release of XLA"
            )
            problems.append(("info", "asynchronous_starts", message))
        return ranges

    def _live(self, values: Values, sequence: list[int], ranges: Live) -> dict[str, Table]:
        """Return the schedule, live ranges, and what lives at the peak."""
        columns, live = self.columns, ranges.values
        self.result.schedule_length = len(sequence)
        self.result.peak_time, listed = printed_peak(self.module, values, ranges)
        peak = _ints([v for _, v in listed])
        sizes = [size for size, _ in listed]
        return {
            "sequence": {
                "program_order": np.arange(len(sequence)),
                "instruction_name": _ints(sequence),
            },
            "ranges": {
                "instruction_name": columns["instruction_name"][live],
                "shape_index": columns["shape_index"][live],
                "start_time": ranges.start[live],
                "end_time": ranges.end[live],
            },
            "peak": {
                "instruction_name": columns["instruction_name"][peak],
                "shape_index": _ints([self.strings.index(values.places[v][1]) for _, v in listed]),
                "logical_bytes": _ints(sizes),
                "cumulative_bytes": _ints(list(itertools.accumulate(sizes))),
                "contributor_ordinal": np.arange(len(sizes)),
            },
        }


def _ints(numbers: Sequence[int]) -> Any:
    return np.array(numbers, np.int64)


def _text(lines: Iterable[str]) -> bytes:
    return "\n".join([*lines, ""]).encode("ascii", "backslashreplace")
