"""A serialised HloProto as the sections of a text dump: what is given, and what follows from it.

One way leads into the tables, that of the text: what is derived from a proto is written down as XLA
writes it, and read by the same readers. Each instruction is described once, not with every
value that it defines, so this text grows as the proto does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bufdb.proto import reader
from bufdb.proto.bodies import asked_for
from bufdb.proto.graph import Module
from bufdb.proto.places import Place, Use, Values, definitions, find_positions, uses_of
from bufdb.proto.printing import Printer, braces, header
from bufdb.proto.reader import UnreadableProto
from bufdb.proto.shapes import Index, part_of, text_of
from bufdb.proto.times import Ranges, Span, flatten, printed_peak, trace_faults

KINDS = ("buffer_assignment", "values", "live_range", "hlo")
"""Sections by the kind of file that holds each in a text dump."""


@dataclass
class Sections:
    """The sections of one module."""

    texts: dict[str, bytes] = field(default_factory=dict)
    """By kind; what cannot be told is not there."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """(severity, code, message) of what the proto does not tell or tells wrongly."""


def texts(data: bytes, wanted: frozenset[str] = frozenset(KINDS)) -> Sections:
    """The sections of a dump that a serialised module stands for.

    Args:
        data: a HloProto or a HloSnapshot, compressed or not.
        wanted: the kinds that somebody asks for.

    Raises:
        UnreadableProto: the bytes are no module, or the package to read them is missing.
    """
    was_collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of small objects, none of them in a cycle
    try:
        proto = reader.read(data)
        module = Module(proto)
        return _Writer(module, proto).sections(wanted)
    except LookupError as error:
        raise UnreadableProto(f"it is damaged: {error} is in it nowhere") from error
    except RecursionError as error:
        raise UnreadableProto("it is damaged: computations call each other without end") from error
    finally:
        if was_collecting:
            gc.enable()


class _Writer:
    """The sections of one module, as lines."""

    def __init__(self, module: Module, proto: Any) -> None:
        self.module, self.proto = module, proto
        self.assignment = proto.buffer_assignment
        self.printer = Printer(module)
        self.found = Sections()
        self._parameters: dict[int, int] = {}
        """Those of the program by number."""

    def sections(self, wanted: frozenset[str]) -> Sections:
        """Those that are wanted, as far as they are known."""
        m, texts = self.module, self.found.texts
        if not self.proto.HasField("buffer_assignment"):
            if "hlo" in wanted:
                texts["hlo"] = self._hlo(Values(), None)
            return self.found
        values = definitions(m, self.assignment)
        positions = find_positions(m, values)
        if "buffer_assignment" in wanted:
            texts["buffer_assignment"] = _text(self._allocations(values, positions))
        uses = {v: uses_of(m, places) for v, places in positions.items()}
        if "values" in wanted:
            texts["values"] = _text(self._used(values, positions, uses))
        if wanted & {"live_range", "hlo"}:
            program = flatten(m)
            ranges = self._ranges(Ranges(m, values, program), positions, uses)
            if "live_range" in wanted and ranges is not None:
                texts["live_range"] = _text(self._live(values, program.sequence, ranges))
            if "hlo" in wanted:
                texts["hlo"] = self._hlo(values, ranges)
        return self.found

    def _hlo(self, values: Values, ranges: dict[int, Span] | None) -> bytes:
        fused = asked_for(self.module, values, ranges, self.assignment)
        return _text([*header(self.module), *self.printer.hlo(fused)])

    def _short(self, v: int, values: Values) -> str:
        """How a value is named wherever it is mentioned."""
        i, index = values.place_of[v]
        at = braces(index) if self.module.is_tuple(i) else ""
        phi = " (phi)" if v in values.phi else ""
        return f"<{v} {self.module.names[i]}{at}{phi} @{values.color[v]}>"

    def _allocations(self, values: Values, positions: dict[int, list[Place]]) -> Iterator[str]:
        m = self.module
        root = m.root[m.entry]
        result = {v for v, places in positions.items() if (root, ()) in places}
        yield "BufferAssignment:"
        for a in self.assignment.buffer_allocations:
            assigned = sorted(a.assigned, key=lambda one: one.logical_buffer_id)
            parts = [f"allocation {a.index}: size {a.size}"]
            if a.color:
                parts.append(f"color {a.color}")
            if a.is_entry_computation_parameter:
                index = tuple(a.parameter_shape_index)
                parts.append(
                    f"parameter {a.parameter_number}, shape "
                    f"|{self._parameter_shape(a.parameter_number, index)}| "
                    f"at ShapeIndex {braces(index)}"
                )
            if any(one.logical_buffer_id in result for one in assigned):
                shape = text_of(m.shape(root), with_layout=False)
                parts.append(f"output shape is |{shape}|")
            kinds = (
                ("constant", a.is_constant),
                ("thread-local", a.is_thread_local),
                ("maybe-live-out", a.maybe_live_out),
            )
            parts += [word for word, holds in kinds if holds]
            if len(parts) == 1 + bool(a.color):
                parts.append("preallocated-temp")
            yield f"{', '.join(parts)}:"
            for one in assigned:
                v = one.logical_buffer_id
                i, index = values.place_of[v]
                shape = self.printer.shape(i)
                if index:
                    shape = text_of(part_of(m.shape(i), index))
                place = f"(size={one.size},offset={one.offset})"
                yield f" value: {self._short(v, values)} {place}: {shape}"

    def _parameter_shape(self, number: int, index: Index) -> str:
        m = self.module
        if not self._parameters:
            for i, home in m.home.items():
                if home == m.entry and m.opcode[i] == "parameter":
                    self._parameters[m.instructions[i].parameter_number] = i
        return text_of(part_of(m.shape(self._parameters[number]), index), with_layout=False)

    def _used(
        self, values: Values, positions: dict[int, list[Place]], uses: dict[int, list[Use]]
    ) -> Iterator[str]:
        m, names, described = self.module, self.module.names, set()
        total = sum(a.size for a in self.assignment.buffer_allocations)
        total = (total + 2**63) % 2**64 - 2**63
        yield ""
        yield f"Total bytes used: {total}"
        yield ""
        yield "Used values:"
        is_tuple = {i: m.is_tuple(i) for i in m.instructions}
        assigned = {
            one.logical_buffer_id for a in self.assignment.buffer_allocations for one in a.assigned
        }
        for v in sorted(assigned):
            yield self._short(v, values)
            yield " positions:"
            for i, index in positions[v]:
                yield f"  {names[i]} {braces(index)}" if is_tuple[i] else f"  {names[i]}"
            yield " uses:"
            for user, number, i, index in uses[v]:
                at = f" {braces(index)}" if is_tuple[i] else ""
                yield f"  {names[user]}, operand {number}{at}"
            if not uses[v]:
                yield "  (none)"
            i = values.place_of[v][0]
            if i not in described:
                described.add(i)
                yield f" from instruction: {self.printer.description(i)}"

    def _ranges(
        self,
        derived: Ranges,
        positions: dict[int, list[Place]],
        uses: dict[int, list[Use]],
    ) -> dict[int, Span] | None:
        """Live ranges, held against the heap simulator's own record; None without a schedule."""
        problems = self.found.problems
        if self.module.entry not in self.module.schedule:
            message = "live ranges are unknown: the proto has no schedule"
            problems.append(("data_loss", "missing_schedule", message))
            return None
        ranges = derived.of(positions, uses, self.assignment)
        wrong, events = trace_faults(self.assignment, ranges)
        if wrong:
            message = (
                f"{wrong} of {events} events of the heap simulator are out of order by the live "
                "ranges that were derived"
            )
            problems.append(("error", "live_ranges_against_trace", message))
        if derived.program.wrapped and not self.module.is_tiled and not derived.starts_late:
            message = (
                "values inside asynchronous computations may start some instants later: from which "
                "release of XLA the proto is it does not tell"
            )
            problems.append(("info", "asynchronous_starts", message))
        return ranges

    def _live(self, values: Values, sequence: list[int], ranges: dict[int, Span]) -> Iterator[str]:
        m = self.module
        yield f"HloLiveRange (max {len(sequence)}):"
        yield "  InstructionSequence:"
        for time, i in enumerate(sequence):
            yield f"    {time}:{m.names[i]}"
        yield "  BufferLiveRange:"
        for v in sorted(ranges):
            i, index = values.place_of[v]
            start, end = ranges[v]
            yield f"    {m.names[i]}{braces(index)}:{start}-{end}"
        instant, listed = printed_peak(m, values, ranges)
        yield f"  Live ranges at {instant} (peak):"
        cumulative = 0
        for size, v in listed:
            i, index = values.place_of[v]
            cumulative += size
            at = f"{m.names[i]}{braces(index)}"
            yield f"    {at}: {size} bytes (cumulative: {cumulative} bytes)"


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("ascii", "backslashreplace")
