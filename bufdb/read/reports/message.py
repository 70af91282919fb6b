"""What an out-of-memory message says of one program; None where it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bufdb.read.reports.sizes import Amount

SPACES = {
    "hbm": 0, "vmem": 1, "sflag": 2, "cmem": 3, "smem": 4, "host": 5, "tile_spmem": 201,
    "spmem": 202, "shared": 300, "tensor": 301,
}  # fmt: skip
"""Memory spaces by the names that messages have for them (format section 11)."""
SPARSE_SPACES = {"0": "smem", "201": "tile_spmem", "202": "spmem", "203": "hbm", "204": "sflag"}
"""Those of SparseCores, by the numbers that their compiler has for them."""
KINDS = {
    "hlo temp": "temp",
    "temp": "temp",
    "scoped": "temp",
    "arguments": "parameter",
    "argument": "parameter",
    "parameter": "parameter",
    "output": "output",
    "constant": "constant",
}
"""Allocation types of TPU messages, in small letters, as allocations.kind has them."""
SCOPED = "scoped"
"""Type of an allocation within one instruction: scratch memory, which is no part of its result."""


@dataclass
class Buffer:
    """One buffer of the listing."""

    number: int
    """As printed, from 1; its place in a listing without numbers."""
    size: Amount | None = None
    shape: str | None = None
    """None for what has none, such as spilled registers."""
    opcode: str | None = None
    name: str | None = None
    """Of the instruction, or what the label says instead; GPU messages print none."""
    result: str | None = None
    """Shape of the instruction's whole result; since 2023 not printed."""
    label: str | None = None
    """The instruction's text, if it is whole and has the metadata."""
    kind: str | None = None
    """allocations.kind; None where the message does not say."""
    is_scoped: bool = False
    """Whether it is scratch memory of its instruction."""
    metadata: dict[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    """Whether the line of = that ends it is there."""


@dataclass
class Message:
    """One message."""

    is_tpu: bool
    space: str = "hbm"
    """Name of the memory space."""
    form: str = "list"
    """What it is about: `list` of a program's allocations, `kernel` (one instruction's scratch
    memory), `operand` (one array of it), `temporaries`, `cores` (TensorCore and SparseCore
    together), `early` (given up before it was compiled), `program` (that could not be loaded),
    `array` (for which there was no room), `tile` (a SparseCore's memory), `block` (a GPU kernel's).
    """
    function: str | None = None
    """Name of the program, as XLA has it."""
    total: Amount | None = None
    """Of all that is counted; of a TPU's program alone where `is_program_alone`."""
    is_program_alone: bool = False
    """Whether arguments and outputs are not in the total, or of unknown size."""
    needed: Amount | None = None
    """What the compiler or the runtime wanted to have."""
    limit: Amount | None = None
    """What there is for it."""
    excess: Amount | None = None
    """How much too much it is."""
    amounts: dict[str, Amount] = field(default_factory=dict)
    """By `argument`, `output`, `alias`, `temp`, `fragmentation`, `scoped`, `constant`, `held` (by
    other arrays)."""
    buffers: list[Buffer] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    """Titles that were read; each begins a message only if the one before has it already."""

    @property
    def color(self) -> int | None:
        """allocations.color; None for a memory space of unknown name."""
        return SPACES.get(self.space)

    @property
    def is_cut(self) -> bool:
        """Whether something is missing that always follows what is there."""
        if any(not buffer.is_whole for buffer in self.buffers[-1:]):
            return True
        if self.is_tpu:
            return "largest" in self.parts and not self.buffers
        has_stats = "stats" in self.parts
        return (has_stats and self.total is None) or ("peak" in self.parts and not self.buffers)

    def is_within(self, other: Message) -> bool:
        """Whether another says all that this one does, and the same."""
        mine, theirs = self.buffers, other.buffers
        names = ("total", "needed", "limit", "excess", "function")
        return (
            (self.is_tpu, self.space) == (other.is_tpu, other.space)
            and (self.form == other.form or self.form == "array")
            and all(getattr(self, name) in (None, getattr(other, name)) for name in names)
            and self.amounts.items() <= other.amounts.items()
            and (mine == theirs[: len(mine)] or _are_alike(mine, theirs))
        )


def _are_alike(cut: list[Buffer], whole: list[Buffer]) -> bool:
    """Whether buffers are those of another message of which the end was cut off."""
    last = len(cut) - 1
    return (
        len(cut) <= len(whole)
        and not cut[last].is_whole
        and cut[:last] == whole[:last]
        and cut[last].size == whole[last].size
    )
