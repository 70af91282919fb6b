"""When values live: program order, live ranges, XLA's own peak (format sections 6 and 10.1)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from bufdb.proto import reader
from bufdb.proto.graph import ASYNC, Module
from bufdb.proto.places import Place, Uses, Values, sharing
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
        when = self.when = [-1] * len(module.ids)
        """The instant of each instruction, -1 if it is in no schedule."""
        for time, i in enumerate(program.sequence):
            when[i] = time
        self.chains: dict[int, Span] = {}
        """Of each asynchronous computation the places of its start and its done."""
        for i in program.sequence:
            chain = module.chain(i) if module.opcode[i] in ASYNC else None
            if chain is not None:
                first, last = self.chains.get(chain, (when[i], when[i]))
                self.chains[chain] = min(first, when[i]), max(last, when[i])
        self.starts_late = bool(program.wrapped) and _starts_at_chain(module)
        self.shows_until = list(when)
        """The instant until which what an instruction shows lives at least."""
        for i in module.is_root:
            self.shows_until[i] = program.spans.get(module.home[i], (0, when[i]))[1]
        self.uses_until = list(when)
        """The instant until which an instruction uses its operands."""
        for i, called in module.calls.items():
            opcode = module.opcode[i]
            if opcode in ("call", "while") and called[0] in program.spans:
                self.uses_until[i] = -1 if opcode == "call" else when[module.parameters[called[0]]]

    def of(
        self, shown: dict[int, list[Place]], uses: list[list[Uses]], assignment: Any
    ) -> dict[int, Span]:
        """Live ranges by value; those of reducers, comparators and the like have none."""
        found = self._alone(shown, uses)
        for members in sharing(self.module, self.values, assignment):
            order = sorted((*found[v], v) for v in members if v in found)
            for (_, _, one), (_, _, two) in itertools.pairwise(order):
                (start, end), (later, last) = found[one], found[two]
                found[two] = later, max(end, last)
                found[one] = start, min(end, later)
        return found

    def _alone(self, shown: dict[int, list[Place]], uses: list[list[Uses]]) -> dict[int, Span]:
        """Ranges before those of values that share a buffer are brought in order."""
        m, when, spans, wrapped = self.module, self.when, self.program.spans, self.program.wrapped
        shows_until, uses_until, found = self.shows_until, self.uses_until, {}
        for v, (i, index) in enumerate(self.values.places):
            start, home = when[i], m.home[i]
            if start < 0 or home not in spans:
                continue
            end = shows_until[i]
            if m.opcode[i] == "parameter":
                start = spans[home][0]
                if home == m.entry:
                    kept = m.instructions[i].parameter_number, index
                    if kept not in m.kept_inputs:
                        found[v] = start, len(self.program.sequence)
                        continue
            if wrapped:
                chain = wrapped.get(home)
                if chain is not None and chain in self.chains:
                    begun, done = self.chains[chain]
                    end = max(end, done)
                    start = begun if self.starts_late else start
            if v in shown:
                end = max(end, *[shows_until[place] for place, _ in shown[v]])
            for _, users in uses[v]:
                for user, _ in users:
                    if uses_until[user] > end:
                        end = uses_until[user]
            found[v] = start, end
        return found


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
    places = values.places
    change = [0] * (2 + max([2, *[end + 2 for _, end in ranges.values()]]))
    for v, (start, end) in ranges.items():
        size = m.size(places[v][0])
        change[start] += size
        change[end + 2] -= size  # the rule counts a value once past its end
    live = list(itertools.accumulate(change))
    most = max(live)
    instant = live.index(most) if most > 0 else 0
    listed = []
    for v, (start, end) in ranges.items():
        if start <= instant <= end:
            i, index = places[v]
            size = bytes_of(part_of(m.shape(i), index)) if index else m.size(i)
            listed.append((size, v))

    def order(row: tuple[int, int]) -> tuple[int, str, tuple[int, ...]]:
        i, index = places[row[1]]
        return -row[0], m.names[i], index

    return instant, sorted(listed, key=order)


def trace_faults(assignment: Any, values: Values, ranges: dict[int, Span]) -> tuple[int, int]:
    """(events out of order, events) of the heap simulator's traces of the whole module.

    A record of XLA's own against which ranges are held without any text: a value's ALLOC or
    SHARE_WITH stands at its start, its FREE at its end, and instants never go back.
    """
    wrong = count = 0
    by_number = {values.numbers[v]: span for v, span in ranges.items()}
    for trace in assignment.heap_simulator_traces:
        if trace.whole_module_simulation:
            now = 0
            for number, kind in [(event.buffer_id, event.kind) for event in trace.events]:
                span = by_number.get(number)
                if span is not None:
                    time = span[kind == 1]
                    count += 1
                    if time < now:
                        wrong += 1
                    else:
                        now = time
    return wrong, count
