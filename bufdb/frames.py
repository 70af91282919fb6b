"""Source places of instructions that name a stack frame instead of a file (format section 7.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columns import Labels
from bufdb.read.hlo import HloHeader
from bufdb.scan import Bools, Columns, Ints, Numbers, Text


def fill_sources(columns: Columns, headers: dict[int, HloHeader], count: int) -> list[int]:
    """Fill in file, line and columns from the frames; the modules that have such instructions.

    Args:
        columns: of `instructions`, with the ordinal of each row's module.
        headers: HLO headers by module ordinal.
        count: number of modules in the batch.
    """
    frame_id: Numbers = columns["stack_frame_id"]
    source_file: Text = columns["source_file"]
    assert frame_id.valid is not None
    nulls = source_file.is_null()
    framed = frame_id.valid & (nulls if nulls is not None else False)
    if not framed.any():
        return []
    modules = columns["module"]
    table = _FrameTable(headers, count)
    place = table.place(modules, frame_id.values, framed)
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
    return [int(module) for module in np.unique(modules[framed])]


class _FrameTable:
    """The stack frames of a batch's modules end to end."""

    def __init__(self, headers: dict[int, HloHeader], count: int) -> None:
        self.base = np.zeros(count, np.int64)
        self.width = np.zeros(count, np.int64)
        codes: dict[str | None, int] = {None: -1}
        slots: list[Any] = []
        for number, header in headers.items():
            highest = max((f.stack_frame_id for f in header.frames), default=0)
            if highest > 10 * len(header.frames) + 1000:
                continue
            self.base[number], self.width[number] = len(slots), highest + 1
            mine: list[Any] = [None] * (highest + 1)
            for frame in header.frames:
                mine[frame.stack_frame_id] = frame
                codes.setdefault(frame.source_file, len(codes) - 1)
            slots += mine
        self.files = [name for name in codes if name is not None]
        self.there = np.array([slot is not None for slot in slots], np.bool_)
        self.file_codes = np.array(
            [-1 if slot is None else codes[slot.source_file] for slot in slots], np.int64
        )
        self.numbers = {}
        for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
            found = [None if slot is None else getattr(slot, name) for slot in slots]
            valid = np.array([value is not None for value in found], np.bool_)
            self.numbers[name] = Numbers(np.array([v or 0 for v in found], np.int64), valid)

    def place(self, modules: Ints, frame_ids: Ints, framed: Bools) -> Ints:
        """The row of each frame, -1 where it is not in the module's table."""
        inside = framed & (frame_ids < self.width[modules])
        place = np.where(inside, self.base[modules] + frame_ids, 0)
        if not len(self.there):
            return np.full(len(place), -1)
        return np.where(inside & self.there[place], place, -1)
