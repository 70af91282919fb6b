"""To which line and op each value is attributed, as attributed_peak_values in `schema/` has it.

What made the data, if a loop carries the value; else the instruction that defines it; else, if XLA
made that without an op_name, what it is for. Where none of these has a line of the user's, the
innermost line counts, which is one of a library then. Lines and op_names are numbers on the way,
and become names once, at the end.
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
from bufdb.read.hlo import Frame, HloHeader

Labels = tuple[Ints, list[str]]
"""A number for each value, -1 where nothing is known, and the names by number."""
_OF_LIBRARY = -2
"""Stands for the line of a frame that has none of the user's: then inline metadata has none."""
_NO_LINE = -3
"""Stands for that of a frame whose file of the user's is known without a line."""
_ToldNames = tuple[str | None, str | None, str | None]
"""A line of the user's, or else one of a library, and an op."""
_Told = tuple[Ints, list[str | None]]
"""Which of the texts is told of each value, -1 for none."""


class Told:
    """Values that are attributed to something else than what defines them."""

    def __init__(self) -> None:
        """No value is."""
        self.names: list[_ToldNames] = []
        """None where the value's own stands."""
        self._rows: list[Ints] = [np.empty(0, np.int64)]
        self._numbers: list[Ints] = [np.empty(0, np.int64)]

    def add(self, rows: Ints, number: Ints, names: Sequence[_ToldNames]) -> None:
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
        self._library_lines: list[Ints] = [np.empty(0, np.int32)]
        self._ops: list[Ints] = [np.empty(0, np.int32)]
        self._line_names = Names()
        self._library_source = context.source.own.library_source
        self._frame_keys, self._frame_lines, self._frame_library_lines = self._lines_of_frames(
            context.source.headers
        )
        self._op_names: list[bytes] = []
        self._op_numbers: dict[int, int] = {}
        """By the hash of an op_name its place in the list."""

    def _lines_of_frames(self, headers: Mapping[int, HloHeader]) -> tuple[Ints, Ints, Ints]:
        """Sorted keys of the stack frames of all modules, and the numbers of the lines of each."""
        keys, lines, library_lines = [], [], []
        for module, header in sorted(headers.items()):
            frames = {frame.stack_frame_id: frame for frame in header.frames}
            for number, frame in sorted(frames.items()):
                line, library_line = _OF_LIBRARY, -1
                if frame.own_frame_id is not None:
                    line = self._line_of(frames[frame.own_frame_id])
                else:
                    library = self._library_source(frame.source_file, frame.source_line)
                    library_line = self._line_names.number(library)
                keys.append(_frame_key(module, number))
                lines.append(line)
                library_lines.append(library_line)
        return (
            np.array(keys, np.int64),
            np.array(lines, np.int64),
            np.array(library_lines, np.int64),
        )

    def _line_of(self, own: Frame) -> int:
        """The number of the line of a frame of the user's."""
        if own.source_file is None or own.source_line is None:
            return _NO_LINE
        return self._line_names.number(f"{own.source_file}:{own.source_line}")

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember lines and op_names."""
        self._keys.append(name_keys)
        lines, library_lines = self._lines_of(columns)
        self._lines.append(lines.astype(np.int32))
        self._library_lines.append(library_lines.astype(np.int32))
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

    def _lines_of(self, columns: Columns) -> tuple[Ints, Ints]:
        """The number of each innermost line that is not library code, below 0 without one.

        Beside it that of the innermost line of all where that is library code, for want of another.
        """
        frame_id: Numbers = columns["stack_frame_id"]
        lines, library_lines = np.full(len(frame_id), -1), np.full(len(frame_id), -1)
        assert frame_id.valid is not None
        framed = np.flatnonzero(frame_id.valid)
        keys = _frame_key(columns["module"][framed], frame_id.values[framed])
        lines[framed] = lookup(self._frame_keys, self._frame_lines, keys)
        library_lines[framed] = lookup(self._frame_keys, self._frame_library_lines, keys)
        source_file, source_line = columns["source_file"], columns["source_line"]
        nulls = source_file.is_null()
        has_line = source_line.valid if nulls is None else source_line.valid & ~nulls
        if nulls is not None:
            library_lines[~nulls] = -1  # the file beside a frame goes before that of the frame
        inline = np.flatnonzero(has_line & ((lines == -1) | (lines == _OF_LIBRARY)))
        numbers = source_line.values[inline]
        hashes = source_file.take(inline).hashes(numbers.astype(np.uint64) ^ SECRET)
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        files = source_file.take(inline[first]).tolist()
        found = np.full((2, len(files)), -1)
        for number, (name, line) in enumerate(zip(files, numbers[first].tolist(), strict=True)):
            file = (name or b"").decode(errors="replace")
            library = self._library_source(file, line)
            text = library or f"{file}:{line}"
            found[0 if library is None else 1, number] = self._line_names.number(text)
        frameless = lines[inline] == -1
        lines[inline[frameless]] = found[0, place[frameless]]
        library_lines[inline] = found[1, place]
        return lines, library_lines

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
        lines, libraries, ops = map(np.concatenate, (self._lines, self._library_lines, self._ops))
        told_lines, told_libraries, told_ops = (
            [name[at] for name in told.names] for at in range(3)
        )
        own_ops, used_ops, op_names = self._stripped(_take(ops, own), _take(ops, used))
        return {
            "source_line": _labels(
                self._line_names.texts,
                (_take(lines, own), _take(lines, used), (number, told_lines)),
                (_take(libraries, own), _take(libraries, used), (number, told_libraries)),
            ),
            "op": _labels(op_names, (own_ops, used_ops, (number, told_ops))),
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


def _labels(texts: list[str], *layers: tuple[Ints, Ints, _Told]) -> Labels:
    """A number for each value: what is told of it, else its own, else "for" that of its use.

    A layer counts where those before it know nothing.
    """
    names = [*texts, *(f"for {text}" for text in texts)]
    known = {text: place for place, text in enumerate(texts)}
    labels = np.full(len(layers[0][0]), -1)
    for own, used, (number, told) in layers:
        of_told = [-1]
        for text in told:
            of_told.append(-1 if text is None else known.setdefault(text, len(names)))
            if of_told[-1] == len(names) and text is not None:
                names.append(text)
        found = np.array(of_told, np.int64)[number + 1]
        for candidates in (found, own, np.where(used >= 0, len(texts) + used, -1)):
            labels = np.where(labels >= 0, labels, candidates)
    return labels, names
