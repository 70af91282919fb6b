"""Who uses each value, at which of the places where it shows (format sections 8.2 and 10.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.proto.graph import Module
from bufdb.proto.places import Place, Values

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
        """These uses."""
        return Uses(
            self.value[rows],
            self.user[rows],
            self.operand_number[rows],
            self.place[rows],
            self.places,
        )


def uses_of(m: Module, values: Values, shown: dict[int, list[Place]]) -> Uses:
    """Uses of each value.

    XLA lists the users of one place in the order in which they came to be, which no proto has.
    """
    users = _Users(m)
    at, count = values.instruction, len(values.numbers)
    # Values that show where they are defined alone, which are most, are used there.
    is_plain = ~users.roots.has_some[at]
    is_plain[list(shown)] = False
    is_inside = np.zeros(count, np.bool_)
    is_inside[[v for v, (_, index) in enumerate(values.places) if index]] = True
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    for edges, mask in ((users.top, is_plain & ~is_inside), (users.inside, is_plain & is_inside)):
        some = np.flatnonzero(mask)
        which, rows = edges.rows(at[some])
        found.append((some[which], edges.user[rows], edges.number[rows], some[which]))
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
    columns = [np.concatenate(column) for column in zip(*found, more, strict=True)]
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
        found: Bools = self._first[1:] > self._first[:-1]
        return found

    def rows(self, operands: Ints) -> tuple[Ints, Ints]:
        """The rows of these operands one behind the other, and of which of them each is."""
        counts = self._first[operands + 1] - self._first[operands]
        which = np.repeat(np.arange(len(operands)), counts)
        ends = np.cumsum(counts)
        rows = np.arange(len(which)) + np.repeat(self._first[operands] - (ends - counts), counts)
        return which, rows

    def of(self, operand: int) -> Sequence[User]:
        """The users of one."""
        users, first = self._lists
        return users[first[operand] : first[operand + 1]]

    @cached_property
    def _lists(self) -> tuple[list[User], list[int]]:
        users = list(zip(self.user.tolist(), self.number.tolist(), strict=True))
        return users, self._first.tolist()


class _Users:
    """Who reads an operand's top, who reads inside it, and roots that only pass it on.

    Apart, because a loop's tuple has thousands of users and each element would ask them all.
    """

    def __init__(self, m: Module) -> None:
        self.m, count = m, len(m.ids)
        counts = np.array(m.given.operand_counts, np.int64)
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
        """Of operands whose result is a tuple."""
        self.roots = edges(((is_alone | is_top) & is_root)[user])

    def at(self, positions: list[Place]) -> list[tuple[Place, Sequence[User]]]:
        """Uses of the value that shows at these places."""
        m = self.m
        in_roots = {i for i, _ in positions if i in m.is_root}
        found: list[tuple[Place, Sequence[User]]] = []
        for i, index in positions:
            users = (self.inside if index else self.top).of(i)
            # A root that shows the value is a use of it, even if it only passes it on.
            more = [user for user in self.roots.of(i) if user[0] in in_roots]
            if more:
                users = sorted({*users, *more}, key=lambda user: (m.ids[user[0]], user[1]))
            found.append(((i, index), users))
        return found
