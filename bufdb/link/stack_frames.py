"""Source places of instructions that name a stack frame instead of a file (format section 7.1)."""

from __future__ import annotations

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Columns, Ints, Numbers, Text
from bufdb.columnar.sets import distinct
from bufdb.link.value_index import lookup, places_of
from bufdb.read.hlo import HloHeader

_PLACES = ("source_line", "source_end_line", "source_column", "source_end_column")


class StackFrames:
    """The stack frames of a batch's modules end to end."""

    def __init__(self, headers: dict[int, HloHeader]) -> None:
        """Take the frames of HLO headers, by module ordinal."""
        frames = [(number, f) for number, header in headers.items() for f in header.frames]
        frame_ids = np.array([frame.stack_frame_id for _, frame in frames], np.int64)
        self._ids = distinct(frame_ids)
        keys = self._keys(np.array([number for number, _ in frames], np.int64), frame_ids)
        self._order = np.argsort(keys, kind="stable")
        self._ordered = keys[self._order]
        codes: dict[str | None, int] = {None: -1}
        for _, frame in frames:
            codes.setdefault(frame.source_file, len(codes) - 1)
        self._files = [name for name in codes if name is not None]
        self._file_codes = np.array([codes[frame.source_file] for _, frame in frames], np.int64)
        self._numbers = {}
        for name in _PLACES:
            found = [getattr(frame, name) for _, frame in frames]
            valid = np.array([value is not None for value in found], np.bool_)
            self._numbers[name] = np.array([v or 0 for v in found], np.int64), valid

    def _keys(self, modules: Ints, frame_ids: Ints) -> Ints:
        """Module and frame in one; -1 for a frame that no module has."""
        place = places_of(self._ids, frame_ids)
        return np.where(place >= 0, modules * len(self._ids) + place, -1)

    def fill_sources(self, columns: Columns) -> tuple[list[int], Ints]:
        """Fill in file, line and columns from the frames.

        Args:
            columns: of `instructions`, with the ordinal of each row's module.

        Returns:
            The modules that have instructions with frames, and the module of every instruction
            whose frame is in no table.
        """
        frame_id: Numbers = columns["stack_frame_id"]
        source_file: Text = columns["source_file"]
        assert frame_id.valid is not None
        has_file = source_file.there()
        framed = np.flatnonzero(frame_id.valid & (~has_file if has_file is not None else False))
        modules = columns["module"][framed]
        place = lookup(self._ordered, self._order, self._keys(modules, frame_id.values[framed]))
        there = np.flatnonzero(place >= 0)
        if len(there):
            self._fill(columns, framed[there], place[there])
        return distinct(modules).tolist(), modules[place < 0]

    def _fill(self, columns: Columns, rows: Ints, place: Ints) -> None:
        """Put the frames of these places into rows without a file of their own."""
        source_file: Text = columns["source_file"]
        labels: list[str | bytes | None] = [None, *self._files]
        codes = np.zeros(len(source_file), np.int64)
        codes[rows] = self._file_codes[place] + 1
        has_file = source_file.there()
        inline = np.arange(len(source_file)) if has_file is None else np.flatnonzero(has_file)
        known: dict[bytes | None, int] = {}
        for row, text in zip(inline.tolist(), source_file.take(inline).tolist(), strict=True):
            if text not in known:
                known[text] = len(labels)
                labels.append(text)
            codes[row] = known[text]
        columns["source_file"] = Labels(codes, labels)
        for name in _PLACES:
            values, valid = columns[name].values.copy(), columns[name].valid.copy()
            values[rows], valid[rows] = (numbers[place] for numbers in self._numbers[name])
            columns[name] = Numbers(values, valid)
