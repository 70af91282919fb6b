"""Source places of instructions that name a stack frame instead of a file (format section 7.1)."""

from __future__ import annotations

import numpy as np

from bufdb.columnar.arrow import Labels
from bufdb.columnar.scan import Columns, Ints, Numbers, Text
from bufdb.columnar.sets import distinct
from bufdb.link.value_index import lookup
from bufdb.read.hlo import HloHeader


def fill_sources(columns: Columns, headers: dict[int, HloHeader]) -> tuple[list[int], list[int]]:
    """Fill in file, line and columns from the frames.

    Args:
        columns: of `instructions`, with the ordinal of each row's module.
        headers: HLO headers by module ordinal.

    Returns:
        The modules that have instructions with frames, and the module of every instruction whose
        frame is in no table.
    """
    frame_id: Numbers = columns["stack_frame_id"]
    source_file: Text = columns["source_file"]
    assert frame_id.valid is not None
    nulls = source_file.is_null()
    framed = frame_id.valid & (nulls if nulls is not None else False)
    if not framed.any():
        return [], []
    modules = columns["module"]
    table = _FrameTable(headers)
    place = np.where(framed, table.place(modules, frame_id.values), -1)
    there = place >= 0
    labels: list[str | bytes | None] = [None, *table.files]
    codes = np.zeros(len(framed), np.int64)
    codes[there] = table.file_codes[place[there]] + 1
    inline = np.flatnonzero(~nulls) if nulls is not None else np.arange(len(framed))
    if len(inline):
        known: dict[bytes | None, int] = {}
        for row, text in zip(inline.tolist(), source_file.take(inline).tolist(), strict=True):
            if text not in known:
                known[text] = len(labels)
                labels.append(text)
            codes[row] = known[text]
    columns["source_file"] = Labels(codes, labels)
    for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
        values = columns[name].values.copy()
        valid = columns[name].valid.copy()
        numbers = table.numbers[name]
        assert numbers.valid is not None
        values[there] = numbers.values[place[there]]
        valid[there] = numbers.valid[place[there]]
        columns[name] = Numbers(values, valid)
    return distinct(modules[framed]).tolist(), modules[framed & ~there].tolist()


class _FrameTable:
    """The stack frames of a batch's modules end to end."""

    def __init__(self, headers: dict[int, HloHeader]) -> None:
        frames = [(number, f) for number, header in headers.items() for f in header.frames]
        self.modules = np.array([number for number, _ in frames], np.int64)
        self.ids = np.array([frame.stack_frame_id for _, frame in frames], np.int64)
        codes: dict[str | None, int] = {None: -1}
        for _, frame in frames:
            codes.setdefault(frame.source_file, len(codes) - 1)
        self.files = [name for name in codes if name is not None]
        self.file_codes = np.array([codes[frame.source_file] for _, frame in frames], np.int64)
        self.numbers = {}
        for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
            found = [getattr(frame, name) for _, frame in frames]
            valid = np.array([value is not None for value in found], np.bool_)
            self.numbers[name] = Numbers(np.array([v or 0 for v in found], np.int64), valid)

    def place(self, modules: Ints, frame_ids: Ints) -> Ints:
        """The row of each frame, -1 where it is not in the module's table."""
        ids, rank = np.unique(np.concatenate([self.ids, frame_ids]), return_inverse=True)
        mine = self.modules * len(ids) + rank[: len(self.ids)]
        order = np.argsort(mine, kind="stable")
        return lookup(mine[order], order, modules * len(ids) + rank[len(self.ids) :])
