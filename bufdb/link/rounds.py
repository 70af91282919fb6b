"""The sections of a batch, read round by round: what one round leaves goes on in the next.

Behind the rounds of texts comes one of the rows that were told without any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bufdb.columnar.account import Account
from bufdb.columnar.section import Piece, Rounds, Section
from bufdb.link.context import Context
from bufdb.read import allocations, live_ranges, used_values
from bufdb.read.told import BUFFERS, RANGES, VALUES


def allocation_rounds(
    context: Context, account: Account | None = None
) -> Iterator[tuple[Section, allocations.Allocations]]:
    """Allocations and their values; lines go into `account`, if it is given."""
    last = -1
    for pieces in context.source.allocations():
        section = Section(pieces, account)
        found = allocations.read(section, -1 if pieces[0].begins else last)
        last = found.last_index
        yield section, found
    if context.source.told.having(BUFFERS):
        yield context.source.told.allocations()


def live_range_rounds(
    context: Context, account: Account | None = None
) -> Iterator[tuple[Section, live_ranges.LiveRanges]]:
    """The schedule, live ranges, and what is live at the peak."""
    kind, listed = live_ranges.START, 0
    for pieces in context.source.live_ranges():
        section = Section(pieces, account)
        found = live_ranges.read(section, kind, listed)
        kind, listed = found.last_kind, found.listed
        yield section, found
    if context.source.told.having(RANGES):
        yield context.source.told.live_ranges()


def used_value_rounds(
    context: Context,
    assigned: used_values.Assigned,
    account: Account | None = None,
    only: set[int] | None = None,
) -> Iterator[tuple[Section, used_values.UsedValues]]:
    """Used values; what a round leaves unread goes in front of the next one."""
    carried, left = b"", 0
    waiting: list[Piece] = []
    for pieces, is_last in _with_last(context.source.used_values()):
        if only is not None:
            pieces = [piece for piece in pieces if piece.module in only]
        if carried:
            # A value of many rounds is read again when it has doubled, not in each of them.
            waiting += pieces
            if not is_last and sum(piece.size for piece in waiting) < len(carried):
                continue
            pieces, waiting = [_prepend(carried, waiting)], []
        section = Section(pieces, account)
        section.first_state = left
        found = used_values.read(section, assigned, context.seeds, is_last)
        yield section, found
        left = section.close()
        rest = section.block.size if found.rest < 0 else found.rest
        carried = section.block.data[rest : section.block.size]
    told = context.source.told
    having = set(told.having(VALUES)) if only is None else only.intersection(told.having(VALUES))
    if having:
        section, found = told.used_values(having, assigned, context.seeds, account)
        yield section, found
        section.close()


def _with_last(rounds: Rounds) -> Iterator[tuple[list[Piece], bool]]:
    """Each round, and whether no other one goes on with its last section."""
    before: list[Piece] | None = None
    for pieces in rounds:
        if before is not None:
            yield before, pieces[0].begins
        before = pieces
    if before is not None:
        yield before, True


def _prepend(carried: bytes, pieces: list[Piece]) -> Piece:
    """Pieces of one section in one, with the unread end of the one above them put in front."""
    lines = carried.count(b"\n")
    first = pieces[0]
    if len(pieces) > 1:
        first = replace(first, data=b"".join(piece.text for piece in pieces), span=None)
    return replace(first, above=carried, lines_before=lambda: pieces[0].lines_before() - lines)
