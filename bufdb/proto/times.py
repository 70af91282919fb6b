"""When values live: program order, live ranges, XLA's own peak (format sections 6 and 10.1)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from bufdb.proto import reader
from bufdb.proto.graph import ASYNC, Module
from bufdb.proto.places import Place, Use, Values, sharing
from bufdb.proto.shapes import bytes_of, part_of

Span = tuple[int, int]
"""First and last instant, the last included."""


@dataclass
class Program:
    """The schedule, flattened: bodies stand before the instructions that they belong to."""

    sequence: list[int] = field(default_factory=list)
    """Instructions."""
    spans: dict[int, Span] = field(default_factory=dict)
    """Of each computation its first place, and the one behind its last."""
    wrapped: dict[int, int] = field(default_factory=dict)
    """By computation the asynchronous one that it is in."""


def flatten(m: Module) -> Program:
    """Put the computations in the order in which they run, each once.

    Raises:
        LookupError: the schedule names what is not there.
    """
    program = Program()
    _walk(m, program, m.entry, None)
    return program


def _walk(m: Module, program: Program, c: int, inside: int | None) -> None:
    """Put a computation behind what runs before it; `inside` is the asynchronous one around it.

    No function within `flatten`: one that calls itself is a cycle, and would keep the module.
    """
    if c in program.spans or c not in m.schedule:
        return
    if inside is not None:
        program.wrapped[c] = inside
    sequence = program.sequence
    start = len(sequence)
    program.spans[c] = start, start
    for i in m.schedule[c]:
        opcode = m.opcode[i]
        if opcode in ("call", "conditional"):
            for called in m.calls.get(i, ()):
                _walk(m, program, called, inside)
        elif opcode == "while":
            body, condition = m.calls[i]
            _walk(m, program, condition, inside)
            _walk(m, program, body, inside)
        elif opcode in ASYNC:
            chain = m.chain(i)
            if chain is not None:
                _walk(m, program, chain, chain)
        sequence.append(i)
    program.spans[c] = start, len(sequence)


class Ranges:
    """Live ranges of the values of one module, each as it is derived."""

    def __init__(self, module: Module, values: Values, program: Program) -> None:
        """Prepare; `of` gives the ranges."""
        self.module, self.values, self.program = module, values, program
        self.when = {i: t for t, i in enumerate(program.sequence)}
        self.chains: dict[int, Span] = {}
        """Of each asynchronous computation the places of its start and its done."""
        for i in program.sequence:
            chain = module.chain(i) if module.opcode[i] in ASYNC else None
            if chain is not None:
                first, last = self.chains.get(chain, (self.when[i], self.when[i]))
                self.chains[chain] = min(first, self.when[i]), max(last, self.when[i])
        self.starts_late = bool(program.wrapped) and _starts_at_chain(module)

    def of(
        self, positions: dict[int, list[Place]], uses: dict[int, list[Use]], assignment: Any
    ) -> dict[int, Span]:
        """Live ranges by value; those of reducers, comparators and the like have none."""
        m, found = self.module, {}
        for v, (i, _) in self.values.place_of.items():
            if i in self.when and m.home[i] in self.program.spans:
                found[v] = self._alone(v, positions[v], uses[v])
        for members in sharing(m, self.values, assignment):
            order = sorted((*found[v], v) for v in members if v in found)
            for (_, _, one), (_, _, two) in itertools.pairwise(order):
                (start, end), (later, last) = found[one], found[two]
                found[two] = later, max(end, last)
                found[one] = start, min(end, later)
        return found

    def _alone(self, v: int, positions: list[Place], uses: list[Use]) -> Span:
        """The range of a value, before those that share its buffer are brought in order."""
        m, when, spans = self.module, self.when, self.program.spans
        i, index = self.values.place_of[v]
        home = m.home[i]
        start = spans[home][0] if m.opcode[i] == "parameter" else when[i]
        end = spans[home][1] if i in m.is_root else when[i]
        chain = self.program.wrapped.get(home)
        if chain is not None and chain in self.chains:
            begun, done = self.chains[chain]
            end = max(end, done)
            start = begun if self.starts_late else start
        if m.opcode[i] == "parameter" and home == m.entry:
            kept = m.instructions[i].parameter_number, index
            if kept not in m.kept_inputs:
                return start, len(self.program.sequence)
        for place, _ in positions[1:]:
            if place in m.is_root:
                end = max(end, spans.get(m.home[place], (0, end))[1])
            else:
                end = max(end, when.get(place, end))
        for user, _, _, _ in uses:
            opcode = m.opcode[user]
            if opcode in ("call", "while") and m.calls[user][0] in spans:
                if opcode == "call":
                    continue
                user = m.parameters[m.calls[user][0]]
            end = max(end, when.get(user, end))
        return start, end


def _starts_at_chain(m: Module) -> bool:
    """Whether values of asynchronous computations begin at the chain's start (format section 7.3).

    The proto has no version. Two fields that came between the two rules tell, if the module has a
    dot, a convolution or a compare anywhere; without one, the older rule is taken.
    """
    if m.is_tiled:
        return True
    return any(
        x.HasField("dot_or_convolution_field") or x.HasField("compare_field")
        for data in m.computations.values()
        for x in reader.instructions_of(data)
    )


def printed_peak(
    m: Module, values: Values, ranges: dict[int, Span]
) -> tuple[int, list[tuple[int, int]]]:
    """The instant that XLA would call the peak, and what it would list: (bytes, value)."""
    change: dict[int, int] = defaultdict(int)
    for v, (start, end) in ranges.items():
        size = m.size(values.place_of[v][0])
        change[start] += size
        change[end + 2] -= size  # the rule counts a value once past its end
    most = now = instant = 0
    for time in sorted(change):
        now += change[time]
        if now > most:
            most, instant = now, time
    listed = []
    for v, (start, end) in ranges.items():
        if start <= instant <= end:
            i, index = values.place_of[v]
            size = bytes_of(part_of(m.shape(i), index)) if index else m.size(i)
            listed.append((size, v))

    def order(row: tuple[int, int]) -> tuple[int, str, tuple[int, ...]]:
        i, index = values.place_of[row[1]]
        return -row[0], m.names[i], index

    return instant, sorted(listed, key=order)


def trace_faults(assignment: Any, ranges: dict[int, Span]) -> tuple[int, int]:
    """(events out of order, events) of the heap simulator's traces of the whole module.

    A record of XLA's own against which ranges are held without any text: a value's ALLOC or
    SHARE_WITH stands at its start, its FREE at its end, and instants never go back.
    """
    wrong = count = 0
    for trace in assignment.heap_simulator_traces:
        if trace.whole_module_simulation:
            now = 0
            for event in trace.events:
                span = ranges.get(event.buffer_id)
                if span is not None:
                    time = span[event.kind == 1]
                    count, wrong, now = count + 1, wrong + (time < now), max(now, time)
    return wrong, count
