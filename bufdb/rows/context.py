"""What the modules of a batch share while their sections become rows, round by round."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Text, Words
from bufdb.columnar.section import Account, Piece, Rounds, Section
from bufdb.read import allocations, live_ranges, used_values
from bufdb.read.arrays import BUFFERS, RANGES, VALUES, ArrayRows
from bufdb.read.calls import CallOp
from bufdb.read.hlo import HloHeader
from bufdb.read.kernels import Companions
from bufdb.read.own import Own
from bufdb.read.used_values import UsedValues

if TYPE_CHECKING:
    from bufdb.read.message import Message


# -- What the steps of an assembly share: the batch, what is known of its modules, where rows go ---

Emit = Callable[[str, Columns], None]
"""Takes a table's name and columns; `module` in them is the module's ordinal in the batch."""

PEAK_PROBLEMS = frozenset(
    {
        "allocation_gap",
        "duplicate_live_range",
        "duplicate_value",
        "live_range_outside_schedule",
        "missing_live_range",
        "missing_values",
        "negative_size",
        "peak_exceeds_total",
        "peak_listing_mismatch",
        "peak_size_mismatch",
        "schedule_mismatch",
        "total_mismatch",
        "unassigned_values",
        "value_outside_allocation",
    }
)
"""Codes of findings with which the peak of a module cannot be relied on."""

SUM_PROBLEMS = frozenset({"allocation_gap", "total_mismatch"})
"""Codes of findings that say that the allocations are not those of one whole program."""

_FILES = {
    "total_mismatch": ("buffer_assignment", "values"),
    "unassigned_values": ("buffer_assignment", "values"),
    "used_values_mismatch": ("buffer_assignment", "values"),
    "missing_live_range": ("buffer_assignment", "live_range"),
    "peak_size_mismatch": ("buffer_assignment", "live_range"),
    "memory_report_mismatch": ("buffer_assignment", "memory_report"),
}
"""The files that do not agree, by the code of the finding; older XLA has them in one."""

# As secrets.randbits, which takes 3 ms to import.
SECRET = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""Random, so that no dump can be written whose names have equal hashes."""


class Source(Protocol):
    """The sections of a batch, each readable any number of times, in rounds of whole lines."""

    count: int
    headers: dict[int, HloHeader]
    frame_ids: dict[int, dict[bytes, int]]
    """Frames by the name of the instruction, where descriptions of values may lack them."""
    call_ops: dict[int, dict[bytes, CallOp]]
    """Op and frame of instructions that have those of the calls of their function."""
    messages: dict[int, Message]
    """Out-of-memory messages by the module that they are about."""
    account: Account
    own: Own
    """Which source files are the user's."""
    described_once: set[int]
    """Modules whose instructions are described with only one of the values that they define, as in
    text derived from a proto."""
    doubts: dict[int, str]
    """Why live ranges cannot be relied on, by module."""
    arrays: ArrayRows
    """Sections that no text holds."""

    reported_sums: dict[int, list[tuple[int | None, int]]]
    """Totals by memory space (None for all of them) in memory-usage-reports, by module."""

    kernels: dict[int, Companions]
    """What files next to the HLO text print of kernels, by module."""

    def path_of(self, module: int, kind: str) -> str | None:
        """Return the path of a module's file of this kind."""

    def leave_out_hlo(self, module: int) -> None:
        """Have no HLO text of this module from here on: it is of another compilation."""

    def allocations(self) -> Rounds:
        """Return the allocation sections."""

    def used_values(self) -> Rounds:
        """Return the sections of totals and used values."""

    def live_ranges(self) -> Rounds:
        """Return the live-range sections."""

    def hlo(self) -> Rounds:
        """Return the computations of the HLO texts."""

    def instructions_of_protos(self, is_wanted: Bools) -> Rounds:
        """Return instructions of modules with an HLO text and a proto, read from the proto."""


@dataclass
class ModuleFacts:
    """Facts about one module besides its rows."""

    total_bytes: int | None = None
    human_total: str | None = None
    allocation_sum: int = 0
    """Modulo 2^64, signed: what XLA prints as the total."""
    has_allocations: bool = False
    has_used_values: bool = False
    has_live_ranges: bool = False
    has_descriptions: bool = False
    """Whether used values say which instruction defines them (` from instruction:`)."""
    has_tiles: bool = False
    is_of_gpu: bool = False
    has_pointer: bool = False
    """Whether allocation lines print an address, as until 2022."""
    has_shapes: bool = False
    """Whether allocation lines print shapes of parameters and outputs, as since 2019-12."""
    has_unread_allocations: bool = False
    """Whether a line of the allocations was not understood."""
    has_unread_live_ranges: bool = False
    """Whether a line of the schedule or the live ranges was not understood."""
    needs_frames: bool = False
    lost_frames: int = 0
    """Instructions that name a stack frame that is in no table."""
    live: live_ranges.Facts = field(default_factory=live_ranges.Facts)
    jit_name: str | None = None
    entry_signature: str | None = None
    """Shapes of parameters and result, as module_signatures has them."""
    is_message: bool = False
    """Whether the module has nothing but a message in a log."""
    has_compiled: bool = False
    """Whether the message is about a program that did not fail."""
    peak_problem: str | None = None
    """The first problem found that makes the peak uncertain."""
    sum_problem: str | None = None
    """The first problem found that makes sums of the allocations wrong."""

    @property
    def peak_unknown_reason(self) -> str | None:
        """modules.peak_unknown_reason: None if all parts of the peak were read and agree."""
        if self.is_message:
            return self.peak_problem
        if not self.has_allocations:
            return "the dump has no allocations"
        if self.sum_problem is not None:
            return self.sum_problem
        if not self.has_live_ranges:
            return "the dump has no live ranges"
        if self.has_unread_allocations:
            return "lines of the allocations could not be read"
        if self.has_unread_live_ranges:
            return "lines of the schedule or the live ranges could not be read"
        return self.peak_problem

    @property
    def is_peak_known(self) -> bool:
        """Whether all parts of the peak were read and agree."""
        return self.peak_unknown_reason is None


class Observer:
    """A step that sees rows pass by because it needs them for more than their own table."""

    def see_allocations(self, rows: Columns) -> None:
        """See allocations, in a round of them."""

    def see_values(self, placed: Columns) -> None:
        """See values with their allocations, in a round of the allocations."""

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """See instructions that are described, before their stack frames are looked up.

        `name` holds which of the value index's names each has, -1 if it defines no value.
        """

    def see_uses(self, used: UsedValues) -> None:
        """See positions and uses of values, after the instructions of their round."""


class Context:
    """A batch in progress: each step adds rows and facts, and none removes any."""

    def __init__(self, source: Source, emit: Emit) -> None:
        """Begin with nothing known; rows go to `emit`."""
        self.source, self.emit = source, emit
        self.account = source.account
        self.count = source.count
        self.observers: list[Observer] = []
        self.facts = [
            ModuleFacts(peak_problem=source.doubts.get(number)) for number in range(source.count)
        ]
        ordinals = np.arange(1, source.count + 1).astype(np.uint64)
        self.seeds: Words = SECRET + ordinals * np.uint64(0x9E3779B97F4A7C15)
        """Seed of each module for the hashes of its names."""

    def find(self, module: int, severity: str, code: str, message: str) -> None:
        """Report a finding, and remember it if it makes the module's peak uncertain."""
        paths = [self.source.path_of(module, kind) for kind in _FILES.get(code, ())]
        names = [path.rpartition("/")[2] for path in paths if path is not None]
        both = f"; {' and '.join(names)} may be of two compilations" if len(names) > 1 else ""
        self.account.find(module, severity, code, message + both)
        facts = self.facts[module]
        if code in SUM_PROBLEMS and facts.sum_problem is None:
            facts.sum_problem = message
        if code in PEAK_PROBLEMS and facts.peak_problem is None:
            facts.peak_problem = message

    def find_in_each(self, modules: Ints, severity: str, code: str, message: str) -> None:
        """Report a finding for each module that is named; `{count}` is how often it is."""
        for module, count in zip(*np.unique(modules, return_counts=True), strict=True):
            self.find(int(module), severity, code, message.format(count=count))

    def having(self, fact: str) -> Bools:
        """Return for each module whether the fact of that name holds."""
        return np.array([getattr(facts, fact) for facts in self.facts], np.bool_)

    def has_hlo(self) -> Bools:
        """Return for each module whether it has an HLO text."""
        return np.isin(np.arange(self.count), list(self.source.headers))

    def set_fact(self, modules: Ints, fact: str) -> None:
        """Set the fact of that name for the modules that are named."""
        for module in np.flatnonzero(np.bincount(modules)).tolist():
            setattr(self.facts[module], fact, True)

    def name_keys(self, columns: Columns) -> Words:
        """Return the hashes of instruction names."""
        name: Text = columns["instruction_name"]
        return name.hashes(self.seeds[columns["module"]])

    def index_keys(self, columns: Columns) -> Words:
        """Return the hashes of name and index; meaningless where the index is absent."""
        index: Text = columns["shape_index"]
        return index.hashes(self.name_keys(columns))


# -- The sections of a batch, read round by round: what one round leaves goes on in the next -------
#
# The rounds of texts are followed by one of the rows that came from protos.


def allocation_rounds(
    context: Context, account: Account | None = None
) -> Iterator[tuple[Section, allocations.Allocations]]:
    """Yield allocations and their values; lines go into `account`, if it is given."""
    last = -1
    for pieces in context.source.allocations():
        section = Section(pieces, account)
        allocated = allocations.read(section, -1 if pieces[0].begins else last)
        last = allocated.last_index
        yield section, allocated
    if context.source.arrays.having(BUFFERS):
        yield context.source.arrays.allocations()


def live_range_rounds(
    context: Context, account: Account | None = None
) -> Iterator[tuple[Section, live_ranges.LiveRanges]]:
    """Yield the schedule, live ranges, and what is live at the peak."""
    kind, listed = live_ranges.START, 0
    for pieces in context.source.live_ranges():
        section = Section(pieces, account)
        ranges = live_ranges.read(section, kind, listed)
        kind, listed = ranges.last_kind, ranges.listed
        yield section, ranges
    if context.source.arrays.having(RANGES):
        yield context.source.arrays.live_ranges()


def used_value_rounds(
    context: Context,
    assigned: used_values.Assigned,
    account: Account | None = None,
    only: set[int] | None = None,
) -> Iterator[tuple[Section, used_values.UsedValues]]:
    """Yield used values; text that a round leaves unread is put before the next one."""
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
        used = used_values.read(section, assigned, context.seeds, is_last)
        yield section, used
        left = section.close()
        rest = section.block.size if used.rest < 0 else used.rest
        carried = section.block.data[rest : section.block.size]
    arrays = context.source.arrays
    having = (
        set(arrays.having(VALUES)) if only is None else only.intersection(arrays.having(VALUES))
    )
    if having:
        section, used = arrays.used_values(having, assigned, context.seeds, account)
        yield section, used
        section.close()


def _with_last(rounds: Rounds) -> Iterator[tuple[list[Piece], bool]]:
    """Yield each round, and whether no other one continues its last section."""
    before: list[Piece] | None = None
    for pieces in rounds:
        if before is not None:
            yield before, pieces[0].begins
        before = pieces
    if before is not None:
        yield before, True


def _prepend(carried: bytes, pieces: list[Piece]) -> Piece:
    """Join pieces of one section, with the unread end of the one above them put in front."""
    lines = carried.count(b"\n")
    first = pieces[0]
    if len(pieces) > 1:
        first = replace(first, data=b"".join(piece.text for piece in pieces), span=None)
    return replace(first, above=carried, lines_before=lambda: pieces[0].lines_before() - lines)
