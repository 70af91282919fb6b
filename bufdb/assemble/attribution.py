"""To which line and op each value is attributed, as attributed_peak_values in `schema/` has it.

What made the data, if a loop carries the value; else the instruction that defines it; else, if XLA
made that without an op_name, what it is for. Lines and op_names are numbers on the way, and become
names once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bufdb.assemble.users import Users
from bufdb.columnar.scan import Columns, Ints, Numbers, Text, Words
from bufdb.link.context import SECRET, Context, Observer
from bufdb.link.lifetimes import Lifetimes
from bufdb.link.op_paths import op_path, strip_op_path
from bufdb.link.value_index import ValueIndex, lookup
from bufdb.read.hlo import HloHeader, is_library_path

Labels = tuple[Ints, list[str]]
"""A number for each value, -1 where nothing is known, and the names by number."""
_NO_LINE = -2
"""Stands for the line of a frame that has none of the user's: then inline metadata has none."""


class Told:
    """Values that are attributed to something else than what defines them."""

    def __init__(self) -> None:
        """No value is."""
        self.names: list[tuple[str | None, str | None]] = []
        """Names of a line and of an op; None where the value's own stands."""
        self._rows: list[Ints] = [np.empty(0, np.int64)]
        self._numbers: list[Ints] = [np.empty(0, np.int64)]

    def add(self, rows: Ints, number: Ints, names: Sequence[tuple[str | None, str | None]]) -> None:
        """Values by row of the index, and which of the names each has."""
        self._rows.append(rows)
        self._numbers.append(number + len(self.names))
        self.names += names

    def numbers(self, rows: Ints) -> Ints:
        """For each row which names it has, or -1."""
        known = np.concatenate(self._rows)
        order = np.argsort(known)
        return lookup(known[order], np.concatenate(self._numbers)[order], rows)


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        """No text has a number yet."""
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text, a new one if it has none; -1 for None."""
        if text is None:
            return -1
        found = self._numbers.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


class Attribution(Observer):
    """The line and the op_name of every instruction of a batch."""

    def __init__(self, context: Context) -> None:
        """No instruction is known yet."""
        self.context = context
        self._keys: list[Words] = [np.empty(0, np.uint64)]
        self._lines: list[Ints] = [np.empty(0, np.int32)]
        self._ops: list[Ints] = [np.empty(0, np.int32)]
        self._line_names = Names()
        self._frame_keys, self._frame_lines = self._lines_of_frames(context.source.headers)
        self._op_names: list[bytes] = []
        self._op_numbers: dict[int, int] = {}
        """By the hash of an op_name its place in the list."""

    def _lines_of_frames(self, headers: Mapping[int, HloHeader]) -> tuple[Ints, Ints]:
        """Sorted keys of the stack frames of all modules, and the number of the line of each."""
        keys, lines = [], []
        for module, header in sorted(headers.items()):
            frames = {frame.stack_frame_id: frame for frame in header.frames}
            for number, frame in sorted(frames.items()):
                own = frames.get(-1 if frame.own_frame_id is None else frame.own_frame_id)
                line = _NO_LINE
                if own is not None and own.source_file is not None and own.source_line is not None:
                    line = self._line_names.number(f"{own.source_file}:{own.source_line}")
                keys.append(_frame_key(module, number))
                lines.append(line)
        return np.array(keys, np.int64), np.array(lines, np.int64)

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember lines and op_names."""
        self._keys.append(name_keys)
        self._lines.append(self._own_lines(columns).astype(np.int32))
        self._ops.append(self._numbered_ops(columns["op_name"]).astype(np.int32))

    def _numbered_ops(self, op_name: Text) -> Ints:
        """The number of each op_name, -1 where there is none."""
        numbers, nulls = np.full(len(op_name), -1), op_name.is_null()
        rows = np.arange(len(op_name)) if nulls is None else np.flatnonzero(~nulls)
        keys, first, inverse = np.unique(
            op_name.take(rows).hashes(SECRET), return_index=True, return_inverse=True
        )
        known = [self._op_numbers.get(key, -1) for key in keys.tolist()]
        new = np.flatnonzero(np.array(known, np.int64) < 0)
        texts = op_name.take(rows[first[new]]).tolist()
        for place, key, text in zip(new.tolist(), keys[new].tolist(), texts, strict=True):
            known[place] = self._op_numbers[key] = len(self._op_names)
            self._op_names.append(text or b"")
        numbers[rows] = np.array(known, np.int64)[inverse]
        return numbers

    def _own_lines(self, columns: Columns) -> Ints:
        """The number of each innermost line that is not library code, below 0 without one."""
        frame_id: Numbers = columns["stack_frame_id"]
        lines = np.full(len(frame_id), -1)
        assert frame_id.valid is not None
        framed = np.flatnonzero(frame_id.valid)
        keys = _frame_key(columns["module"][framed], frame_id.values[framed])
        lines[framed] = lookup(self._frame_keys, self._frame_lines, keys)
        source_file, source_line = columns["source_file"], columns["source_line"]
        nulls = source_file.is_null()
        has_line = source_line.valid if nulls is None else source_line.valid & ~nulls
        inline = np.flatnonzero(has_line & (lines == -1))
        numbers = source_line.values[inline]
        hashes = source_file.take(inline).hashes(numbers.astype(np.uint64) ^ SECRET)
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        files = source_file.take(inline[first]).tolist()
        found = []
        for name, line in zip(files, numbers[first].tolist(), strict=True):
            file = (name or b"").decode(errors="replace")
            text = None if is_library_path(file) else f"{file}:{line}"
            found.append(self._line_names.number(text))
        lines[inline] = np.array(found, np.int64)[place]
        return lines

    def of_values(
        self,
        values: ValueIndex,
        rows: Ints,
        told: Told,
        users: Users,
        lifetimes: Lifetimes,
    ) -> dict[str, Labels]:
        """The source line and the op of each value.

        Args:
            values: the values of the batch.
            rows: which of them are asked about, temp values.
            told: values whose data were made elsewhere, with the names of line and op.
            users: what values are for.
            lifetimes: the order of the program.
        """
        keys = np.concatenate(self._keys)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        own = lookup(ordered, order, values.name_key[rows])
        user, _ = users.of_values(rows, lifetimes)
        used = np.where(user < 0, -1, lookup(ordered, order, values.names[user]))
        number = told.numbers(rows)
        lines, ops = np.concatenate(self._lines), np.concatenate(self._ops)
        return {
            "source_line": _labels(
                _take(lines, own),
                _take(lines, used),
                self._line_names.texts,
                (number, [line for line, _ in told.names]),
            ),
            "op": _labels(
                *self._stripped(_take(ops, own), _take(ops, used)),
                (number, [op for _, op in told.names]),
            ),
        }

    def _stripped(self, own: Ints, used: Ints) -> tuple[Ints, Ints, list[str]]:
        """The same for op_names without what JAX adds; several of them may be one then."""
        wanted = np.unique(np.concatenate([own, used]))
        wanted = wanted[wanted >= 0]
        names, numbers = Names(), np.full(len(self._op_names) + 1, -1)
        for number in wanted.tolist():
            text = self._op_names[number].decode(errors="replace")
            numbers[number] = names.number(strip_op_path(op_path(text)))
        return numbers[own], numbers[used], names.texts


def _frame_key(module: Any, frame_id: Any) -> Any:
    """Module and frame in one; XLA counts frames from 1, so 32 bits are ample."""
    return (module << 32) + np.clip(frame_id, 0, 2**32 - 1)


def _take(numbers: Ints, rows: Ints) -> Ints:
    """The numbers of rows, -1 where the row is -1 or has none."""
    taken: Ints = np.full(len(rows), -1)
    there = np.flatnonzero(rows >= 0)
    taken[there] = np.maximum(numbers[rows[there]], -1)
    return taken


def _labels(own: Ints, used: Ints, texts: list[str], told: tuple[Ints, list[str | None]]) -> Labels:
    """A number for each value: what is told of it, else its own, else "for" that of its use."""
    count = len(texts)
    labels = np.where(own >= 0, own, np.where(used >= 0, count + used, -1))
    names = [*texts, *(f"for {text}" for text in texts)]
    number, told_texts = told
    if told_texts:
        known = {text: place for place, text in enumerate(texts)}
        of_told = []
        for text in told_texts:
            of_told.append(-1 if text is None else known.setdefault(text, len(names)))
            if of_told[-1] == len(names) and text is not None:
                names.append(text)
        found = np.where(number >= 0, np.array(of_told, np.int64)[number], -1)
        labels = np.where(found >= 0, found, labels)
    return labels, names
