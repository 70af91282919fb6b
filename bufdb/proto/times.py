"""Live ranges and uses of a serialized module."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.proto import reader
from bufdb.proto.graph import ASYNC, WAITING, Module
from bufdb.proto.places import Assignment, Place, Values, sharing
from bufdb.proto.shapes import bytes_of

# -- Who uses each value, at which of the places where it shows (format sections 8.2 and 10.1) -----

User = tuple[int, int]
"""An instruction and the number of one of its operands."""
_ALONE = frozenset(("tuple", "domain"))
"""They read neither an operand nor what is in it."""
_TOP = frozenset(("get-tuple-element", "copy"))
"""They read the top of an operand, and pass on what is in it."""


@dataclass
class Uses:
    """Uses by value, by the place that is used, then by user; arrays with a row for each."""

    value: Ints
    user: Ints
    """An instruction."""
    operand_number: Ints
    place: Ints
    """Which of `places` is used."""
    places: list[Place] = field(default_factory=list)
    """Where each value is defined, then others."""

    def take(self, rows: Bools) -> Uses:
        """Return these uses."""
        return Uses(
            self.value[rows],
            self.user[rows],
            self.operand_number[rows],
            self.place[rows],
            self.places,
        )


def uses_of(m: Module, values: Values, shown: dict[int, list[Place]]) -> Uses:
    """Return uses of each value.

    XLA lists the users of one place in the order of their creation, which no proto has.
    """
    users = _Users(m)
    at, count = values.instruction, len(values.numbers)
    # Values that show only where they are defined, which are most, are used there.
    is_plain = ~users.roots.has_some[at]
    is_plain[list(shown)] = False
    is_inside = np.zeros(count, np.bool_)
    is_inside[[v for v, (_, index) in enumerate(values.places) if index]] = True
    uses: list[tuple[Ints, Ints, Ints, Ints]] = []
    for edges, mask in ((users.top, is_plain & ~is_inside), (users.inside, is_plain & is_inside)):
        some = np.flatnonzero(mask)
        which, rows = edges.rows(at[some])
        uses.append((some[which], edges.user[rows], edges.number[rows], some[which]))
    places = list(values.places)
    owners: list[int] = []
    others: list[User] = []
    at_places: list[int] = []
    for v in np.flatnonzero(~is_plain).tolist():
        for place, some_users in users.at([values.places[v], *shown.get(v, ())]):
            owners += [v] * len(some_users)
            others += some_users
            at_places += [len(places)] * len(some_users)
            places.append(place)
    pairs = np.array(others, np.int64).reshape(-1, 2)
    more = np.array(owners, np.int64), pairs[:, 0], pairs[:, 1], np.array(at_places, np.int64)
    columns = [np.concatenate(column) for column in zip(*uses, more, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    value, user, number, place_rows = [column[order] for column in columns]
    return Uses(value, user, number, place_rows, places)


class _Edges:
    """Some operands of instructions, by the instruction that they are."""

    def __init__(self, operand: Ints, user: Ints, number: Ints, count: int) -> None:
        order = np.argsort(operand, kind="stable")
        self.user, self.number = user[order], number[order]
        self._first = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(operand, minlength=count), out=self._first[1:])

    @property
    def has_some(self) -> Bools:
        """Which instructions are an operand here."""
        has_edge: Bools = self._first[1:] > self._first[:-1]
        return has_edge

    def rows(self, operands: Ints) -> tuple[Ints, Ints]:
        """Return the rows of these operands end to end, and which operand each is of."""
        counts = self._first[operands + 1] - self._first[operands]
        which = np.repeat(np.arange(len(operands)), counts)
        ends = np.cumsum(counts)
        rows = np.arange(len(which)) + np.repeat(self._first[operands] - (ends - counts), counts)
        return which, rows

    def of(self, operand: int) -> Sequence[User]:
        """Return the users of one."""
        users, first = self._lists
        return users[first[operand] : first[operand + 1]]

    @cached_property
    def _lists(self) -> tuple[list[User], list[int]]:
        users = list(zip(self.user.tolist(), self.number.tolist(), strict=True))
        return users, self._first.tolist()


class _Users:
    """The readers of an operand's top, the readers inside it, and roots that only pass it on.

    Kept apart because a loop's tuple has thousands of users and each element would ask them all.
    """

    def __init__(self, m: Module) -> None:
        self.m, count = m, len(m.ids)
        counts = np.array(m.instructions.operand_counts, np.int64)
        operand = np.array(m.flat_operands, np.int64)
        user = np.repeat(np.arange(count), counts)
        number = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_alone = np.array([word in _ALONE for word in m.opcode], np.bool_)
        is_top = np.array([word in _TOP for word in m.opcode], np.bool_)
        is_root, is_tuple = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        is_root[list(m.is_root)] = True
        is_tuple[list(m.tuples)] = True
        reads = ~is_alone[user]

        def edges(rows: Bools) -> _Edges:
            return _Edges(operand[rows], user[rows], number[rows], count)

        self.top = edges(reads)
        self.inside = edges(reads & ~is_top[user] & is_tuple[operand])
        """The uses of operands whose result is a tuple."""
        self.roots = edges(((is_alone | is_top) & is_root)[user])

    def at(self, positions: list[Place]) -> list[tuple[Place, Sequence[User]]]:
        """Return uses of the value that shows at these places."""
        m = self.m
        in_roots = {i for i, _ in positions if i in m.is_root}
        used_at: list[tuple[Place, Sequence[User]]] = []
        for i, index in positions:
            users = (self.inside if index else self.top).of(i)
            # A root that shows the value is a use of it, even if it only passes it on.
            more = [user for user in self.roots.of(i) if user[0] in in_roots]
            if more:
                users = sorted({*users, *more}, key=lambda user: (m.ids[user[0]], user[1]))
            used_at.append(((i, index), users))
        return used_at


# -- When values live: program order, live ranges, XLA's own peak (format sections 6 and 10.1) -----

Span = tuple[int, int]
"""First and last instant, the last included."""


@dataclass
class Program:
    """The schedule, flattened: bodies come before the instructions that they belong to."""

    sequence: list[int] = field(default_factory=list)
    """Instructions."""
    spans: dict[int, Span] = field(default_factory=dict)
    """The first place of each computation, and the one after its last."""
    wrapped: dict[int, int] = field(default_factory=dict)
    """By computation the asynchronous one that it is in."""


def flatten(m: Module) -> Program:
    """Put the computations in the order in which they run, each once.

    Raises:
        NotUnderstood: a loop calls something other than a body and a condition.
    """
    program = Program()
    _walk(m, program, m.entry, None)
    return program


def _walk(m: Module, program: Program, c: int, inside: int | None) -> None:
    """Put a computation after what runs before it; `inside` is the asynchronous one around it.

    Not a function within `flatten`: one that calls itself is a cycle, and would keep the module.
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
        called = m.calls.get(i, ())
        if opcode == "while":
            if len(called) != 2:
                raise m.not_understood(i, ValueError(f"{len(called)} computations"))
            called = called[::-1]  # the condition first
        if opcode in WAITING:
            for one in called:
                _walk(m, program, one, inside)
        elif opcode in ASYNC and (i in m.entered or opcode == "async-done"):
            chain = m.chain(i)
            if chain is not None:
                _walk(m, program, chain, chain)
        sequence.append(i)
    program.spans[c] = start, len(sequence)


@dataclass
class Live:
    """Live ranges of all values; -1 for those that have none, as of reducers and comparators."""

    start: Ints
    end: Ints
    """The last instant, included."""

    @property
    def values(self) -> Ints:
        """The values that have one."""
        return np.flatnonzero(self.start >= 0)


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
        """The places of the start and the done of each asynchronous computation."""
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
            if opcode == "call" and called[0] in program.spans:
                self.uses_until[i] = -1
            elif opcode == "while" and called[0] in program.spans:
                if called[0] not in module.parameters:
                    raise module.not_understood(i, ValueError("its body has no parameter"))
                self.uses_until[i] = when[module.parameters[called[0]]]

    def of(self, shown: dict[int, list[Place]], uses: Uses, assignment: Assignment) -> Live:
        """Return the live ranges by value."""
        alone = self._alone(shown, uses)
        starts, ends = alone.start.tolist(), alone.end.tolist()
        for members in sharing(self.module, self.values, assignment):
            order = sorted((starts[v], ends[v], v) for v in members if v >= 0 and starts[v] >= 0)
            for (_, _, one), (_, _, two) in itertools.pairwise(order):
                end = ends[one]
                ends[one] = min(end, starts[two])
                ends[two] = max(end, ends[two])
        return Live(alone.start, np.array(ends, np.int64))

    def _alone(self, shown: dict[int, list[Place]], uses: Uses) -> Live:
        """Return ranges before those of values that share a buffer are put in order."""
        m, at, program = self.module, self.values.instruction, self.program
        homes, home = np.unique(np.array(m.home, np.int64), return_inverse=True)
        first = np.array([program.spans.get(c, (-1, -1))[0] for c in homes.tolist()], np.int64)
        first, home = first[home[at]], home[at]
        start = np.array(self.when, np.int64)[at]
        has_range = (start >= 0) & (first >= 0)
        end = np.array(self.shows_until, np.int64)[at]
        is_parameter = np.array([word == "parameter" for word in m.opcode], np.bool_)[at]
        start = np.where(is_parameter, first, start)
        if program.wrapped:
            none = -1, -1
            spans = [self.chains.get(program.wrapped.get(c, -1), none) for c in homes.tolist()]
            begun, done = np.array(spans, np.int64).reshape(-1, 2)[home].T
            end = np.maximum(end, done)
            start = np.where(self.starts_late, np.maximum(start, begun), start)
        for v, places in shown.items():
            end[v] = max(end[v], *[self.shows_until[i] for i, _ in places])
        used, rows = np.unique(uses.value, return_index=True)
        if len(used):
            until = np.array(self.uses_until, np.int64)[uses.user]
            end[used] = np.maximum(end[used], np.maximum.reduceat(until, rows))
        for v in np.flatnonzero(is_parameter & (homes[home] == m.entry)).tolist():
            i, index = self.values.places[v]
            if (m.instructions.parameter_numbers[i], index) not in m.kept_inputs:
                start[v], end[v] = first[v], len(program.sequence)
        return Live(np.where(has_range, start, -1), np.where(has_range, end, -1))


def _starts_at_chain(m: Module) -> bool:
    """Return whether asynchronous values begin at the chain's start (format section 7.3).

    The proto has no version. Two fields that came between the two rules decide, if the module has a
    dot, a convolution or a compare anywhere; without one, the older rule is taken.
    """
    if m.is_tiled:
        return True
    return any(
        x.HasField("dot_or_convolution_field") or x.HasField("compare_field")
        for data in m.computations.values()
        for x in reader.instructions_of(data)
    )


def exact(sizes: list[int]) -> Any:
    """Return sizes as an array in which no sum of them overflows."""
    return np.array(sizes, np.int64 if sum(map(abs, sizes)) < 2**62 else object)


def instant_of_most(start: Ints, after: Ints, sizes: Any) -> int:
    """Return the first instant at which what lives has the most bytes, 0 if it never has any.

    Args:
        start: first instants.
        after: instants after the last ones.
        sizes: bytes, from `exact`.
    """
    change = np.zeros(1 + int(after.max(initial=0)), sizes.dtype)
    np.add.at(change, start, sizes)
    np.subtract.at(change, after, sizes)
    live = np.cumsum(change)
    instant = int(np.argmax(live))
    return instant if live[instant] > 0 else 0


def printed_peak(m: Module, values: Values, ranges: Live) -> tuple[int, list[tuple[int, int]]]:
    """Return the instant that XLA would call the peak, and what it would list: (bytes, value)."""
    places, live, whole = values.places, ranges.values, m.sizes
    start, end = ranges.start[live], ranges.end[live]
    sizes = exact([whole[i] for i in values.instruction[live].tolist()])
    # The rule counts a value once past its end.
    instant = instant_of_most(start, end + 2, sizes)
    listed = []
    for v in live[(start <= instant) & (instant <= end)].tolist():
        i, index = places[v]
        size = bytes_of(m.part(i, index)) if index else whole[i]
        listed.append((size, v))

    def order(row: tuple[int, int]) -> tuple[int, str, tuple[int, ...]]:
        i, index = places[row[1]]
        return -row[0], m.names[i], index

    return instant, sorted(listed, key=order)


def trace_faults(assignment: Assignment, values: Values, ranges: Live) -> tuple[int, int]:
    """Return (events out of order, events) of the heap simulator's traces of the whole module.

    This is XLA's own record, which checks ranges without any text: a value's ALLOC or SHARE_WITH is
    at its start, its FREE at its end, and instants never go back.
    """
    wrong = count = 0
    known = np.array(values.numbers, np.int64)
    for number, kind in assignment.traces:
        v = lookup(known, number)
        is_free, v = kind[v >= 0] == 1, v[v >= 0]
        time = np.where(is_free, ranges.end[v], ranges.start[v])[ranges.start[v] >= 0]
        count += len(time)
        wrong += int((time < np.maximum.accumulate(time)).sum())
    return wrong, count


def lookup(known: Ints, numbers: Ints) -> Ints:
    """Return where numbers are among known ones, which ascend; -1 for those that are absent."""
    if not len(known):
        return np.full(len(numbers), -1)
    place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[place] == numbers, place, -1)
