"""A serialised HloProto as the sections of a text dump: what is given, and what follows from it.

One way leads into the tables, that of the text: what is derived from a proto is written down as XLA
writes it, and read by the same readers. Each instruction is described once at the most, not with
every value that it defines, so this text grows as the proto does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bufdb.proto import reader
from bufdb.proto.bodies import asked_for
from bufdb.proto.graph import ASYNC, Module
from bufdb.proto.places import Place, Use, Values, definitions, find_shown, uses_of
from bufdb.proto.printing import Printer, header, index_text
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
        self._shorts: list[str] = []
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
        shown = find_shown(m, values)
        if "buffer_assignment" in wanted:
            texts["buffer_assignment"] = _text(self._allocations(values, shown))
        uses = uses_of(m, values, shown)
        if "values" in wanted:
            is_told = "hlo" not in wanted
            texts["values"] = _text(self._used(values, shown, uses, is_told=is_told))
        if wanted & {"live_range", "hlo"}:
            program = flatten(m)
            ranges = self._ranges(Ranges(m, values, program), shown, uses)
            if "live_range" not in wanted:
                self.found.problems.clear()
            elif ranges is not None:
                texts["live_range"] = _text(self._live(values, program.sequence, ranges))
            if "hlo" in wanted:
                texts["hlo"] = self._hlo(values, ranges)
        return self.found

    def _hlo(self, values: Values, ranges: dict[int, Span] | None) -> bytes:
        fused = asked_for(self.module, values, ranges, self.assignment)
        return _text([*header(self.module), *self.printer.hlo(fused)])

    def _short(self, values: Values) -> list[str]:
        """How each value is named wherever it is mentioned."""
        if not self._shorts:
            names, tuples, phi = self.module.names, self.module.tuples, values.phi
            every = zip(values.numbers, values.places, values.colors, strict=True)
            self._shorts = [
                f"<{number} {names[i]}{index_text(index) if i in tuples else ''}"
                f"{' (phi)' if v in phi else ''} @{color}>"
                for v, (number, (i, index), color) in enumerate(every)
            ]
        return self._shorts

    def _allocations(self, values: Values, shown: dict[int, list[Place]]) -> list[str]:
        m, places, shapes, shorts = (
            self.module,
            values.places,
            self.printer.shapes,
            self._short(values),
        )
        result = m.root[m.entry], ()
        results = {v for v, more in shown.items() if result in more}
        results.add(values.defined.get(result, -1))
        lines = ["BufferAssignment:"]
        for a, slices in zip(self.assignment.buffer_allocations, values.assigned, strict=True):
            holds_result = any([v in results for v, _, _ in slices])
            lines.append(f"allocation {a.index}: size {a.size}{self._kinds(a, holds_result)}:")
            for v, size, offset in sorted(slices):
                i, index = places[v]
                shape = text_of(part_of(m.shape(i), index)) if index else shapes[i]
                lines.append(f" value: {shorts[v]} (size={size},offset={offset}): {shape}")
        return lines

    def _kinds(self, a: Any, holds_result: bool) -> str:
        """What an allocation is for, behind its size; `holds_result` if the program's is there."""
        kinds = ""
        if a.is_entry_computation_parameter:
            index = tuple(a.parameter_shape_index)
            kinds = (
                f", parameter {a.parameter_number}, shape "
                f"|{self._parameter_shape(a.parameter_number, index)}| "
                f"at ShapeIndex {index_text(index)}"
            )
        if holds_result:
            shape = text_of(self.module.shape(self.module.root[self.module.entry]), False)
            kinds += f", output shape is |{shape}|"
        if a.is_constant:
            kinds += ", constant"
        if a.is_thread_local:
            kinds += ", thread-local"
        if a.maybe_live_out:
            kinds += ", maybe-live-out"
        color = a.color
        return f"{f', color {color}' if color else ''}{kinds or ', preallocated-temp'}"

    def _parameter_shape(self, number: int, index: Index) -> str:
        m = self.module
        if not self._parameters:
            for i in m.members[m.entry]:
                if m.opcode[i] == "parameter":
                    self._parameters[m.instructions[i].parameter_number] = i
        return text_of(part_of(m.shape(self._parameters[number]), index), with_layout=False)

    def _used(
        self,
        values: Values,
        shown: dict[int, list[Place]],
        uses: list[list[Use]],
        *,
        is_told: bool,
    ) -> list[str]:
        """Used values; `is_told` if their instructions are to be described, each once.

        Where the HLO text is derived too, that tells all but the short form of asynchronous ones.
        """
        m, names, tuples, shorts = (
            self.module,
            self.module.names,
            self.module.tuples,
            self._short(values),
        )
        described: set[int] = set()
        sizes = [a.size for a in self.assignment.buffer_allocations]
        total = (sum(sizes) + 2**63) % 2**64 - 2**63
        lines = ["", f"Total bytes used: {total}", "", "Used values:"]
        add = lines.append
        assigned = {v for slices in values.assigned for v, _, _ in slices}
        for v in sorted(assigned):
            i, index = values.places[v]
            at = f" {index_text(index)}" if i in tuples else ""
            add(f"{shorts[v]}\n positions:\n  {names[i]}{at}")
            for place, index in shown.get(v, ()):
                at = f" {index_text(index)}" if place in tuples else ""
                add(f"  {names[place]}{at}")
            add(" uses:")
            for user, number, operand, index in uses[v]:
                at = f" {index_text(index)}" if operand in tuples else ""
                add(f"  {names[user]}, operand {number}{at}")
            if not uses[v]:
                add("  (none)")
            if i not in described and (is_told or m.opcode[i] in ASYNC):
                described.add(i)
                add(f" from instruction: {self.printer.description(i)}")
        return lines

    def _ranges(
        self, derived: Ranges, shown: dict[int, list[Place]], uses: list[list[Use]]
    ) -> dict[int, Span] | None:
        """Live ranges, held against the heap simulator's own record; None without a schedule."""
        problems = self.found.problems
        if self.module.entry not in self.module.schedule:
            message = "live ranges are unknown: the proto has no schedule"
            problems.append(("data_loss", "missing_schedule", message))
            return None
        ranges = derived.of(shown, uses, self.assignment)
        wrong, events = trace_faults(self.assignment, derived.values, ranges)
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

    def _live(self, values: Values, sequence: list[int], ranges: dict[int, Span]) -> list[str]:
        names, places = self.module.names, values.places
        lines = [f"HloLiveRange (max {len(sequence)}):", "  InstructionSequence:"]
        lines += [f"    {time}:{names[i]}" for time, i in enumerate(sequence)]
        lines.append("  BufferLiveRange:")
        for v in sorted(ranges):
            i, index = places[v]
            start, end = ranges[v]
            lines.append(f"    {names[i]}{index_text(index)}:{start}-{end}")
        instant, listed = printed_peak(self.module, values, ranges)
        lines.append(f"  Live ranges at {instant} (peak):")
        cumulative = 0
        for size, v in listed:
            i, index = places[v]
            cumulative += size
            at = f"{names[i]}{index_text(index)}"
            lines.append(f"    {at}: {size} bytes (cumulative: {cumulative} bytes)")
        return lines


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("ascii", "backslashreplace")
