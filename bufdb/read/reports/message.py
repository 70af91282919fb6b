"""What an out-of-memory message says of one program; None where it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bufdb.read.reports.sizes import Amount

SPACES = {"hbm": 0, "vmem": 1, "sflag": 2, "cmem": 3, "smem": 4, "host": 5}
"""Memory spaces of TPUs by the names that messages have for them (format section 11)."""
KINDS = {
    "hlo temp": "temp",
    "temp": "temp",
    "arguments": "parameter",
    "argument": "parameter",
    "parameter": "parameter",
    "output": "output",
    "constant": "constant",
}
"""Allocation types of TPU messages, in small letters, as allocations.kind has them."""


@dataclass
class Buffer:
    """One buffer of the listing."""

    number: int
    """As printed, from 1."""
    size: Amount | None = None
    shape: str | None = None
    opcode: str | None = None
    name: str | None = None
    """Of the instruction; GPU messages print none."""
    result: str | None = None
    """Shape of the instruction's whole result."""
    label: str | None = None
    """The instruction's text, if it is whole and has the metadata."""
    kind: str | None = None
    """allocations.kind; None where the message does not say."""
    metadata: dict[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    """Whether the line of = that ends it is there."""


@dataclass
class Message:
    """One message."""

    is_tpu: bool
    space: str = "hbm"
    """Name of the memory space."""
    total: Amount | None = None
    """Of all that is counted; of a TPU's program alone where `is_program_alone`."""
    is_program_alone: bool = False
    """Whether arguments and outputs are not in the total, or of unknown size."""
    limit: Amount | None = None
    """What the device has."""
    amounts: dict[str, Amount] = field(default_factory=dict)
    """By `argument`, `output`, `alias`, `temp`, `fragmentation`, `constant`."""
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
            # Messages about one instruction's scratch memory have a title and nothing below it.
            return bool(self.parts & {"usage", "program"}) and not self.buffers
        has_stats = "stats" in self.parts
        return (has_stats and self.total is None) or ("peak" in self.parts and not self.buffers)
