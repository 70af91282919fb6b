"""What values are for that XLA made without an op_name: the instruction that uses them.

Of the uses of a value the first in program order that has an op_name counts; if none has, the first
of all, and what that is for in turn. Instructions are numbered by the names of the value index.
"""

from __future__ import annotations

import numpy as np

from bufdb.columnar.arrow import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.link.context import Context, Observer
from bufdb.link.lifetimes import Lifetimes
from bufdb.link.value_index import ValueIndex, isin, lookup
from bufdb.read.used_values import UsedValues

STEPS = 4
"""How many uses lead from a value to what it is for at the most: copy, convert, transpose, pad."""


class Users(Observer):
    """The uses of values without an op_name."""

    def __init__(self, context: Context, values: ValueIndex) -> None:
        """No use is known yet."""
        self.context, self.values = context, values
        self._named: list[Words] = [np.empty(0, np.uint64)]
        """Names of instructions that have an op_name, sorted in each part."""
        self._rows: list[Ints] = [np.empty(0, np.int64)]
        self._keys: list[Words] = [np.empty(0, np.uint64)]
        self._walks: tuple[Ints, Ints, Bools] | None = None

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember which have an op_name."""
        op_name: Text = columns["op_name"]
        nulls = op_name.is_null()
        self._named.append(np.sort(name_keys if nulls is None else name_keys[~nulls]))

    def see_uses(self, found: UsedValues) -> None:
        """Remember the uses of values whose instruction is not known to have an op_name."""
        rows = found.rows
        nameless = rows >= 0
        # Mostly an instruction is described with its value, in the same round.
        nameless[nameless] = ~isin(self.values.name_key[rows[nameless]], self._named[-1])
        uses = {name: found.uses[name] for name in ("module", "head", "instruction_name")}
        uses = take(uses, nameless[uses["head"]])
        self._rows.append(rows[uses["head"]])
        self._keys.append(self.context.name_keys(uses))

    def rows(self, temps: Ints, held: Columns, lifetimes: Lifetimes) -> Columns:
        """Rows of `value_users`.

        Args:
            temps: the temp values that occupy bytes, as rows of the index.
            held: rows of `peak_values`; of these the values of outputs.
            lifetimes: which instructions are in the schedule, and where.
        """
        values = self.values
        rows = np.union1d(temps, self._outputs(held))
        user, steps = self.of_values(rows, lifetimes)
        there = user >= 0
        rows, user, steps = rows[there], user[there], steps[there]
        return {
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
            is_named = isin(self.values.names, np.sort(np.concatenate(self._named)))
            self._walks = (*self._first_users(is_named, lifetimes), is_named)
        of_value, of_instruction, is_named = self._walks
        user, steps = _walk(of_value[rows], of_instruction, is_named)
        user[is_named[self._instruction(self.values.name_key[rows])]] = -1
        return user, steps

    def _instruction(self, keys: Words) -> Ints:
        """The number of each instruction, -1 where it defines no value."""
        return lookup(self.values.names, np.arange(len(self.values.names)), keys)

    def _first_users(self, is_named: Bools, lifetimes: Lifetimes) -> tuple[Ints, Ints]:
        """For each value, and for each instruction, the user that counts, or -1."""
        rows, keys = np.concatenate(self._rows), np.concatenate(self._keys)
        user, order = self._instruction(keys), lifetimes.program_order(keys)
        assert order.valid is not None
        # Uses inside a fused or called computation stand beside that of the caller; such have no
        # place in the program.
        there = np.flatnonzero((user >= 0) & order.valid)
        rows, user, time = rows[there], user[there], order.values[there]
        definer = self._instruction(self.values.name_key[rows])
        found = []
        for group, count in ((rows, len(self.values)), (definer, len(is_named))):
            first = np.full(count, -1)
            # The last that is written stays.
            ranked = np.lexsort((-time, is_named[user]))
            first[group[ranked]] = user[ranked]
            found.append(first)
        return found[0], found[1]


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
