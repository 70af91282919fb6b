"""What a value is attributed to: its own op_name, or the instruction that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.memory.ranges import parts
from bufdb.read.hlo import Frame, HloHeader
from bufdb.read.used_values import UsedValues
from bufdb.rows.context import SECRET, Context, Observer
from bufdb.rows.lifetimes import Lifetimes
from bufdb.rows.op_names import OpNames, Stripped
from bufdb.rows.value_index import ValueIndex, lookup, places_of

# -- The uses of values that XLA made without an op_name -------------------------------------------
#
# If a use of a value has an op_name, the first such use in program order counts; otherwise the
# first of all, and what that is for in turn. Instructions are numbered by the names of the value
# index.

STEPS = 8
"""Limit on the uses between a value and what it is for: copy, convert, transpose, pad."""


class Users(Observer):
    """The uses of values without an op_name, to find what these values are for."""

    def __init__(self, context: Context, values: ValueIndex) -> None:
        """Start without any use."""
        self.context, self.values = context, values
        self.is_named = np.zeros(len(values.names), np.bool_)
        """Which names that define values are of instructions with an op_name."""
        self._rows: list[Ints] = []
        """Values that are used, and the names of their users, by number, round by round."""
        self._users: list[Ints] = []
        self._walks: tuple[Ints, Ints] | None = None

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember which instructions have an op_name."""
        op_name: Text = columns["op_name"]
        there, name = op_name.there(), columns["name"]
        name = name if there is None else name[there]
        self.is_named[name[name >= 0]] = True

    def see_uses(self, used: UsedValues) -> None:
        """Remember the uses of values whose instruction is not known to have an op_name."""
        rows = used.rows
        nameless = rows >= 0
        # In most cases an instruction is described with its value, in the same round.
        nameless[nameless] = ~self.is_named[self.values.name[rows[nameless]]]
        uses = {name: used.uses[name] for name in ("module", "head", "instruction_name")}
        uses = take(uses, np.flatnonzero(nameless[uses["head"]]))
        user = places_of(self.values.names, self.context.name_keys(uses))
        self._rows.append(rows[uses["head"]][user >= 0])
        self._users.append(user[user >= 0])

    def rows(self, temps: Ints, held: Columns, lifetimes: Lifetimes) -> Iterator[Columns]:
        """Rows of `value_users`, some at a time.

        Args:
            temps: the temp values that occupy bytes, as rows of the index.
            held: rows of `peak_values`; only the values of outputs are used.
            lifetimes: which instructions are in the schedule, and where.
        """
        values = self.values
        # Millions of rows, in order: np.union1d would hash and sort them.
        is_asked = np.zeros(len(values), np.bool_)
        is_asked[temps] = True
        is_asked[self._outputs(held)] = True
        selected = np.flatnonzero(is_asked)
        for part in parts(len(selected)):
            rows = selected[part]
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
        """Return the values that represent outputs at the peak, as rows of the index."""
        value_id: Numbers = held["value_id"]
        kind: Labels = held["allocation_kind"]
        is_output = np.array([name == "output" for name in kind.labels], np.bool_)[kind.codes]
        has_value = np.ones(len(kind), np.bool_) if value_id.valid is None else value_id.valid
        outputs = np.flatnonzero(is_output & has_value)
        return self.values.by_number(held["module"][outputs], value_id.values[outputs])

    def of_values(self, rows: Ints, lifetimes: Lifetimes) -> tuple[Ints, Ints]:
        """Return what values are for: the number of an instruction and of the uses that lead to it.

        It is -1 for values whose instruction has an op_name, and where none is found.
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
            # Uses inside a fused or called computation are listed with that of the caller; they
            # have no place in the program.
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
        # The last write stays.
        chosen = chosen[np.lexsort((-time[chosen], is_named[chosen]))]
        first[of[chosen]] = user[chosen]


def _walk(user: Ints, of_instruction: Ints, is_named: Bools) -> tuple[Ints, Ints]:
    """Return the first user with an op_name on the way from each, or -1, and the use count."""
    user, first_user = user.copy(), np.full(len(user), -1)
    steps = np.zeros(len(user), np.int64)
    for step in range(1, STEPS + 1):
        there = np.flatnonzero(user >= 0)
        named = there[is_named[user[there]]]
        first_user[named], steps[named] = user[named], step
        user[there] = of_instruction[user[there]]
        user[named] = -1
    return first_user, steps


# --------------------------------------------------------------------------------------------------
# To which line and op each value is attributed, as attributed_peak_values in `schema/` has it.
#
# What made the data, if a loop carries the value; else the instruction that defines it; else, if
# XLA made that without an op_name, what it is for. Where none of these has a line of the user's,
# the innermost line counts, which is one of a library then. Instructions are numbered by the names
# of the value index, lines and op_names are numbers on the way, and become names once, at the end.

Coded = tuple[Ints, Sequence[str]]
"""A number for each value, -1 where nothing is known, and the names by number."""
_OF_LIBRARY = -2
"""Line number of a frame without any of the user's: then inline metadata has none."""
_NO_LINE = -3
"""Line number of a frame whose file is the user's and whose line is not known."""
_ToldNames = tuple[str | None, str | None, str | None]
"""A line of the user's, or else one of a library, and an op."""
_TextOf = tuple[Ints, list[str | None]]
"""Index of the text that each value is given, -1 for none."""


class Attributed:
    """Values that are attributed to something other than what defines them."""

    def __init__(self) -> None:
        """Start without any such value."""
        self.names: list[_ToldNames] = []
        """None where the value's own name counts."""
        self.is_backward: list[bool | None] = []
        """Whether the backward pass makes it; None if the value's own fact counts."""
        self._rows: list[Ints] = [np.empty(0, np.int64)]
        self._numbers: list[Ints] = [np.empty(0, np.int64)]

    def add(
        self,
        rows: Ints,
        number: Ints,
        names: Sequence[_ToldNames],
        is_backward: Sequence[bool | None],
    ) -> None:
        """Add values by row of the index, and which of the names each has."""
        self._rows.append(rows)
        self._numbers.append(number + len(self.names))
        self.names += names
        self.is_backward += is_backward

    def numbers(self, rows: Ints) -> Ints:
        """For each row which names it has, or -1."""
        known, number = np.concatenate(self._rows), np.concatenate(self._numbers)
        order = np.argsort(known)
        known, number = known[order], number[order]
        numbers = np.empty(len(rows), np.int64)
        for part in parts(len(rows)):
            numbers[part] = lookup(known, number, rows[part])
        return numbers


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        """Start without any text."""
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Return the number of a text, a new one if it has none; -1 for None."""
        if text is None:
            return -1
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def find(self, text: str) -> int:
        """Return the number of a text, or -1."""
        return self._numbers.get(text, -1)


class Attribution(Observer):
    """The line and the op_name of every instruction of a batch that defines a value."""

    def __init__(self, context: Context, values: ValueIndex) -> None:
        """Start without any instruction."""
        self.context, self.values = context, values
        count = len(values.names)
        self.lines: Ints = np.full(count, -1)
        """For each instruction the number of its innermost line that is not library code."""
        self.library_lines: Ints = np.full(count, -1)
        self.ops: Ints = np.full(count, -1)
        self.line_names, self.op_names = Names(), OpNames()
        self._library_source = context.source.own.library_source
        self._frame_keys, self._frame_lines, self._frame_library_lines = self._lines_of_frames(
            context.source.headers
        )

    def _lines_of_frames(self, headers: Mapping[int, HloHeader]) -> tuple[Ints, Ints, Ints]:
        """Return the sorted keys of all modules' stack frames, and the line numbers of each."""
        keys, lines, library_lines = [], [], []
        for module, header in sorted(headers.items()):
            frames = {frame.stack_frame_id: frame for frame in header.frames}
            for number, frame in sorted(frames.items()):
                line, library_line = _OF_LIBRARY, -1
                if frame.own_frame_id is not None:
                    line = self._line_of(frames[frame.own_frame_id])
                else:
                    library = self._library_source(frame.source_file, frame.source_line)
                    library_line = self.line_names.number(library)
                keys.append(_frame_key(module, number))
                lines.append(line)
                library_lines.append(library_line)
        return (
            np.array(keys, np.int64),
            np.array(lines, np.int64),
            np.array(library_lines, np.int64),
        )

    def _line_of(self, own: Frame) -> int:
        """Return the number of the line of a user's frame."""
        if own.source_file is None or own.source_line is None:
            return _NO_LINE
        return self.line_names.number(f"{own.source_file}:{own.source_line}")

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember lines and op_names."""
        name = columns["name"]
        defining = np.flatnonzero(name >= 0)
        name = name[defining]
        lines, library_lines = self._lines_of(columns)
        ops = self.op_names.numbers(columns["op_name"])
        self.lines[name] = lines[defining]
        self.library_lines[name] = library_lines[defining]
        self.ops[name] = ops[defining]

    def _lines_of(self, columns: Columns) -> tuple[Ints, Ints]:
        """Return the number of each innermost line that is not library code, below 0 without one.

        Also return that of the innermost line of all where it is library code, for want of another.
        """
        frame_id: Numbers = columns["stack_frame_id"]
        lines, library_lines = np.full(len(frame_id), -1), np.full(len(frame_id), -1)
        assert frame_id.valid is not None
        framed = np.flatnonzero(frame_id.valid)
        keys = _frame_key(columns["module"][framed], frame_id.values[framed])
        lines[framed] = lookup(self._frame_keys, self._frame_lines, keys)
        library_lines[framed] = lookup(self._frame_keys, self._frame_library_lines, keys)
        source_file, source_line = columns["source_file"], columns["source_line"]
        has_file = source_file.there()
        has_line = source_line.valid if has_file is None else source_line.valid & has_file
        if has_file is not None:
            library_lines[has_file] = -1  # a file given with a frame goes before the frame's own
        inline = np.flatnonzero(has_line & ((lines == -1) | (lines == _OF_LIBRARY)))
        numbers = source_line.values[inline]
        hashes = source_file.take(inline).hashes(numbers.astype(np.uint64) ^ SECRET)
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        files = source_file.take(inline[first]).tolist()
        line_numbers = np.full((2, len(files)), -1)
        for number, (name, line) in enumerate(zip(files, numbers[first].tolist(), strict=True)):
            file = (name or b"").decode(errors="replace")
            library = self._library_source(file, line)
            text = library or f"{file}:{line}"
            line_numbers[0 if library is None else 1, number] = self.line_names.number(text)
        frameless = lines[inline] == -1
        lines[inline[frameless]] = line_numbers[0, place[frameless]]
        library_lines[inline] = line_numbers[1, place]
        return lines, library_lines

    def of_values(
        self, rows: Ints, attributed: Attributed, users: Users, lifetimes: Lifetimes
    ) -> tuple[dict[str, Coded], Bools]:
        """Return the source line and the op of each value, and whether the backward pass makes it.

        Args:
            rows: the values in question, temp values.
            attributed: values whose data were made elsewhere, with the names of line and op.
            users: what values are for.
            lifetimes: the order of the program.
        """
        own = self.values.name[rows]
        used = users.of_values(rows, lifetimes)[0]
        number = attributed.numbers(rows)
        lines, libraries, ops = ([name[at] for name in attributed.names] for at in range(3))
        stripped = Stripped(self.op_names, self._wanted_ops(own, used))
        by_line = _Labelled(self.line_names.texts, self.line_names.find, len(rows))
        by_line.add(self.lines, own, used, (number, lines))
        by_line.add(self.library_lines, own, used, (number, libraries))
        by_op = _Labelled(stripped, stripped.find, len(rows))
        by_op.add(stripped.places(self.ops), own, used, (number, ops))
        labels: dict[str, Coded] = {
            "source_line": (by_line.labels, by_line),
            "op": (by_op.labels, by_op),
        }
        return labels, self._is_backward(own, used, number, attributed)

    def _is_backward(self, own: Ints, used: Ints, number: Ints, attributed: Attributed) -> Bools:
        """By the op_name that counts: of what made the data, of the value, of what it is for."""
        of_name = np.array([*self.op_names.is_backward, 0], np.bool_)
        op = self.ops[own]
        is_backward: Bools = of_name[np.where((op < 0) & (used >= 0), self.ops[used], op)]
        of_attributed = np.array(
            [-1, *(-1 if one is None else one for one in attributed.is_backward)], np.int8
        )
        made = of_attributed[number + 1]
        return np.where(made >= 0, made > 0, is_backward)

    def _wanted_ops(self, own: Ints, used: Ints) -> Bools:
        """Which op_names some of these instructions have."""
        is_wanted = np.zeros(len(self.op_names) + 1, np.bool_)
        is_wanted[self.ops[own]] = True
        is_wanted[self.ops[used[used >= 0]]] = True
        return is_wanted[:-1]


def _frame_key(module: Any, frame_id: Any) -> Any:
    """Return module and frame in one; XLA counts frames from 1, so 32 bits are ample."""
    return (module << 32) + np.clip(frame_id, 0, 2**32 - 1)


class _Labelled(Sequence[str]):
    """A number for each value and the text of each number: its own, or "for" that of its use.

    The text that a value was given takes precedence over both.
    """

    def __init__(self, texts: Sequence[str], find: Callable[[str], int], count: int) -> None:
        """Start without any label.

        Args:
            texts: the texts by number.
            find: the number of a text, -1 if it is not one of them.
            count: number of values.
        """
        self.texts, self._find = texts, find
        self._more: dict[str, int] = {}
        self._names_of_more: list[str] = []
        self.labels: Ints = np.full(count, -1)
        """Number for each value, -1 where nothing is known."""

    def add(self, number_of: Ints, own: Ints, used: Ints, attributed: _TextOf) -> None:
        """Add what is known of values that have no text yet.

        Args:
            number_of: for each instruction the number of its text, below 0 without one.
            own: the instruction that defines each value.
            used: what the value is for, another instruction, or -1.
            attributed: the text that each value was given.
        """
        labels, count = self.labels, len(self.texts)
        numbers = np.array([-1, *map(self._number, attributed[1])], np.int64)
        if len(numbers) > 1:
            _fill(labels, numbers[attributed[0] + 1])
        _fill(labels, number_of[own])
        of_use = number_of[used]
        _fill(labels, np.where((used >= 0) & (of_use >= 0), of_use + count, -1))

    def _number(self, text: str | None) -> int:
        if text is None:
            return -1
        label = self._find(text)
        if label < 0 and text not in self._more:
            self._more[text] = len(self)
            self._names_of_more.append(text)
        return label if label >= 0 else self._more[text]

    def __len__(self) -> int:
        return 2 * len(self.texts) + len(self._more)

    # A sequence takes slices too, which no caller uses here.
    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        count = len(self.texts)
        if number < count:
            return self.texts[number]
        if number < 2 * count:
            return f"for {self.texts[number - count]}"
        return self._names_of_more[number - 2 * count]


def _fill(labels: Ints, numbers: Ints) -> None:
    """Take numbers from 0 where there is no label."""
    np.copyto(labels, numbers, where=(labels < 0) & (numbers >= 0))
