"""What values are for that XLA made without an op_name: the instruction that uses them.

Of the uses of a value the first in program order that has an op_name counts; if none has, the first
of all, and what that is for in turn. Instructions are numbered by the names of the value index.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.link.context import Context, Observer
from bufdb.link.lifetimes import Lifetimes
from bufdb.link.value_index import ValueIndex, places_of
from bufdb.memory.ranges import parts
from bufdb.read.used_values import UsedValues

STEPS = 4
"""How many uses lead from a value to what it is for at the most: copy, convert, transpose, pad."""


class Users(Observer):
    """The uses of values without an op_name."""

    def __init__(self, context: Context, values: ValueIndex) -> None:
        """No use is known yet."""
        self.context, self.values = context, values
        self.is_named = np.zeros(len(values.names), np.bool_)
        """Which names that define values are of instructions with an op_name."""
        self._rows: list[Ints] = []
        """Values that are used, and the names of their users, by number, round by round."""
        self._users: list[Ints] = []
        self._walks: tuple[Ints, Ints] | None = None

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember which have an op_name."""
        op_name: Text = columns["op_name"]
        there, name = op_name.there(), columns["name"]
        name = name if there is None else name[there]
        self.is_named[name[name >= 0]] = True

    def see_uses(self, found: UsedValues) -> None:
        """Remember the uses of values whose instruction is not known to have an op_name."""
        rows = found.rows
        nameless = rows >= 0
        # Mostly an instruction is described with its value, in the same round.
        nameless[nameless] = ~self.is_named[self.values.name[rows[nameless]]]
        uses = {name: found.uses[name] for name in ("module", "head", "instruction_name")}
        uses = take(uses, np.flatnonzero(nameless[uses["head"]]))
        user = places_of(self.values.names, self.context.name_keys(uses))
        self._rows.append(rows[uses["head"]][user >= 0])
        self._users.append(user[user >= 0])

    def rows(self, temps: Ints, held: Columns, lifetimes: Lifetimes) -> Iterator[Columns]:
        """Rows of `value_users`, some at a time.

        Args:
            temps: the temp values that occupy bytes, as rows of the index.
            held: rows of `peak_values`; of these the values of outputs.
            lifetimes: which instructions are in the schedule, and where.
        """
        values = self.values
        # Millions of rows, in order: np.union1d would hash and sort them.
        is_asked = np.zeros(len(values), np.bool_)
        is_asked[temps] = True
        is_asked[self._outputs(held)] = True
        asked = np.flatnonzero(is_asked)
        for part in parts(len(asked)):
            rows = asked[part]
            user, steps = self.of_values(rows, lifetimes)
            there = user >= 0
            rows, user, steps = rows[there], user[there], steps[there]
            yield {
                "module": values.module[rows],
                "value_id": values.value_id[rows],
                "user_value_id": values.value_id[values.first[user]],
                "step_count": steps,
            }

    def _outputs(self, held: Columns) -> Ints:
        """The values that stand for outputs at the peak, as rows of the index."""
        value_id: Numbers = held["value_id"]
        kind: Labels = held["allocation_kind"]
        is_output = np.array([name == "output" for name in kind.labels], np.bool_)[kind.codes]
        has_value = np.ones(len(kind), np.bool_) if value_id.valid is None else value_id.valid
        mine = np.flatnonzero(is_output & has_value)
        return self.values.by_number(held["module"][mine], value_id.values[mine])

    def of_values(self, rows: Ints, lifetimes: Lifetimes) -> tuple[Ints, Ints]:
        """What values are for: the number of an instruction and of the uses that lead to it.

        -1 for values whose instruction has an op_name, and where none is found.
        """
        if self._walks is None:
            self._walks = self._first_users(lifetimes)
        of_value, of_instruction = self._walks
        users = np.empty(len(rows), np.int64)
        steps = np.empty(len(rows), np.int64)
        for part in parts(len(rows)):
            some = rows[part]
            user, steps[part] = _walk(of_value[some], of_instruction, self.is_named)
            user[self.is_named[self.values.name[some]]] = -1
            users[part] = user
        return users, steps

    def _first_users(self, lifetimes: Lifetimes) -> tuple[Ints, Ints]:
        """For each value, and for each instruction, the user that counts, or -1."""
        of_value = np.full(len(self.values), -1)
        of_instruction = np.full(len(self.is_named), -1)
        while self._rows:
            rows, user = self._rows.pop(0), self._users.pop(0)
            # Uses inside a fused or called computation stand beside that of the caller; such have
            # no place in the program.
            there = np.flatnonzero(lifetimes.order[user] >= 0)
            rows, user = rows[there], user[there]
            self._count_first(of_value, rows, user, lifetimes)
            self._count_first(of_instruction, self.values.name[rows], user, lifetimes)
        return of_value, of_instruction

    def _count_first(self, first: Ints, of: Ints, user: Ints, lifetimes: Lifetimes) -> None:
        """Put users where they go before those that are there: named ones, then early ones.

        Args:
            first: the user that counts so far, or -1.
            of: the places in it that these users belong to.
            user: by the numbers of their names, all with a place in the program.
            lifetimes: the order of the program.
        """
        held = first[of]
        time, before = lifetimes.order[user], lifetimes.order[held]
        is_named, was_named = self.is_named[user], self.is_named[held]
        better = (held < 0) | (is_named > was_named) | ((is_named == was_named) & (time <= before))
        chosen = np.flatnonzero(better)
        # The last that is written stays.
        chosen = chosen[np.lexsort((-time[chosen], is_named[chosen]))]
        first[of[chosen]] = user[chosen]


def _walk(user: Ints, of_instruction: Ints, is_named: Bools) -> tuple[Ints, Ints]:
    """The first user with an op_name on the way from each, or -1, and the number of uses to it."""
    user, found = user.copy(), np.full(len(user), -1)
    steps = np.zeros(len(user), np.int64)
    for step in range(1, STEPS + 1):
        there = np.flatnonzero(user >= 0)
        named = there[is_named[user[there]]]
        found[named], steps[named] = user[named], step
        user[there] = of_instruction[user[there]]
        user[named] = -1
    return found, steps
