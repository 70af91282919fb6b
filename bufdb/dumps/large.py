"""One large module, in rounds of a block of whole lines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from bufdb.columnar.section import Piece, Rounds
from bufdb.dumps.batch import Batch
from bufdb.dumps.blocks import BLOCK_BYTES, LARGE_BLOCK_BYTES
from bufdb.dumps.load import Loaded
from bufdb.dumps.text import DumpText
from bufdb.read.boundaries import Span
from bufdb.read.hlo import NOTHING_MORE, Own


class LargeModule(Batch):
    """One module in rounds of a block of whole lines."""

    def __init__(
        self,
        loaded: Loaded,
        block_bytes: int = BLOCK_BYTES,
        own: Own = NOTHING_MORE,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Args as those of Batch; `progress` is given the bytes of each round that was read."""
        self.progress = progress
        self.block_bytes = min(block_bytes, LARGE_BLOCK_BYTES)
        self._spans: tuple[list[tuple[DumpText, Span]], ...] = ([], [], [])
        super().__init__([loaded], own)

    def _read(self, number: int, text: DumpText, *spans: Span) -> None:
        for some, span in zip(self._spans, spans, strict=True):
            if min(span[1], text.size) > span[0]:
                some.append((text, span))

    def _rounds(self, section: int) -> Iterator[Piece]:
        for text, span in self._spans[section]:
            for piece in text.rounds(span, self.block_bytes):
                yield piece
                if self.progress is not None:
                    self.progress(piece.size)

    def allocations(self) -> Rounds:
        """Allocation section, in rounds."""
        return ([piece] for piece in self._rounds(0))

    def used_values(self) -> Rounds:
        """Totals and used values, in rounds."""
        return ([piece] for piece in self._rounds(1))

    def live_ranges(self) -> Rounds:
        """Live ranges in rounds; the tree of the printed peak comes in one, being one."""
        rest: list[Piece] = []
        for piece in self._rounds(2):
            if piece.begins and rest:
                yield [_joined(rest)]
                rest = []
            if rest:
                rest.append(piece)
                continue
            text = piece.text
            place = _tree_start(text)
            if place < 0:
                yield [piece]
                continue
            if place:
                yield [replace(piece, data=text[:place], span=None)]
            above = functools.partial(_lines_above, piece, place)
            begins = piece.begins and place == 0
            rest.append(Piece(0, piece.path, text[place:], above, begins=begins))
        if rest:
            yield [_joined(rest)]


def _joined(pieces: list[Piece]) -> Piece:
    return replace(pieces[0], data=b"".join(piece.text for piece in pieces), span=None)


_TREE = b"  Stack trace breakdown for "


def _tree_start(text: bytes) -> int:
    """Where the tree may begin, or -1."""
    # An expression takes twelve times as long.
    place = text.find(_TREE)
    while place > 0 and text[place - 1] != ord("\n"):
        place = text.find(_TREE, place + 1)
    return place


def _lines_above(piece: Piece, place: int) -> int:
    """Number of lines above a place in a piece, in its file."""
    return piece.lines_before() + piece.text.count(b"\n", 0, place)
