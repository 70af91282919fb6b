"""Out-of-memory messages as columns, with their sizes in bytes (format section 9)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any

from bufdb.read.amount import LIMIT, Amount
from bufdb.read.log_warnings import Warned
from bufdb.read.shape import Shape, shape_of

# -- Sizes that are rounded, and made exact where a shape says the same ----------------------------

_TILE = re.compile(r"\{([\d,]*):T\(([\d,]+)\)")


def size_of(shape: str, printed: Amount) -> tuple[int, bool]:
    """Return the bytes of a buffer, and whether they are exact.

    They are those of the shape's elements or, in a tiled layout, of its whole tiles, if they would
    be printed the same; otherwise those printed.
    """
    parsed = shape_of(shape)
    for size in (parsed.logical_bytes, _tiled_bytes(parsed)):
        if size is not None and printed.may_be(size):
            return size, True
    return printed.size_bytes, not printed.slack_bytes


def _tiled_bytes(shape: Shape) -> int | None:
    """Return bytes with the last dimensions rounded up to whole tiles; None if the layout has none.

    A further tiling, such as (2,1), orders the elements of a tile and adds none.
    """
    tiled = _TILE.match(shape.layout or "")
    if tiled is None or shape.dimensions is None or not shape.logical_bytes:
        return None
    order = [int(part) for part in tiled[1].split(",") if part]
    tile = [int(part) for part in tiled[2].split(",") if part]
    if sorted(order) != list(range(len(shape.dimensions))) or 0 in tile or not shape.element_count:
        return None
    sizes = [shape.dimensions[place] or 0 for place in reversed(order)]
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    first = len(sizes) - len(tile)
    whole = [-(-size // step) * step for size, step in zip(sizes[first:], tile, strict=True)]
    count = prod(sizes[:first]) * prod(whole)
    size = -(-count * shape.logical_bytes // shape.element_count)
    return size if size < LIMIT else None


# -- What an out-of-memory message says about one program; None where it does not say --------------

SPACES = {
    "hbm": 0, "vmem": 1, "sflag": 2, "cmem": 3, "smem": 4, "host": 5, "tile_spmem": 201,
    "spmem": 202, "shared": 300, "tensor": 301, "collective": 1,
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
"""Type of an allocation within one instruction: scratch memory, not part of its result."""


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
    """Name of the instruction, or what the label says instead; GPU messages print none."""
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
    `warning`: XLA's warnings alone. Of programs that did not fail: `summary` (libtpu's, of a
    compilation), `statistics` (JAX's).
    """
    function: str | None = None
    """Name of the program, as XLA has it."""
    total: Amount | None = None
    """Everything that is counted; a TPU's program alone where `is_program_alone`."""
    is_program_alone: bool = False
    """Whether arguments and outputs are not in the total, or of unknown size."""
    needed: Amount | None = None
    """What the compiler or the runtime asked for."""
    limit: Amount | None = None
    """What is available for it."""
    excess: Amount | None = None
    """By how much it is too large."""
    amounts: dict[str, Amount] = field(default_factory=dict)
    """By `argument`, `output`, `alias`, `temp`, `fragmentation`, `scoped`, `constant`, `held` (by
    other arrays)."""
    buffers: list[Buffer] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    """Titles that were read; each begins a message only if the one before has it already."""
    warnings: list[Warned] = field(default_factory=list)
    """XLA's warnings about memory that the log has above it."""
    more: list[Message] = field(default_factory=list)
    """The same program's other memory spaces."""

    def of_space(self, space: str) -> Message:
        """Return what the message says about a memory space, which is added if it is not there."""
        for one in (self, *self.more):
            if one.space == space:
                return one
        self.more.append(Message(self.is_tpu, space, self.form))
        return self.more[-1]

    def host(self) -> Message:
        """Return what the message says about the host's memory."""
        return self.of_space("host")

    @property
    def unshared(self) -> Amount | None:
        """Bytes of outputs that are in no argument's memory; None if the message does not say."""
        output, alias = self.amounts.get("output"), self.amounts.get("alias")
        if output is None or alias is None:
            return None
        size, slack = output.size_bytes - alias.size_bytes, output.slack_bytes + alias.slack_bytes
        return Amount(size, slack) if size > slack else Amount(0, 0)

    def parts_of_total(self) -> Amount | None:
        """Return the sum of what "Total hbm usage" adds up; None if a part is not known."""
        parts = [self.amounts.get(name) for name in ("reserved", "program", "argument")]
        return None if None in parts else sum((p for p in parts if p is not None), Amount(0, 0))

    @property
    def color(self) -> int | None:
        """allocations.color; None for a memory space of unknown name."""
        return SPACES.get(self.space)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but a title."""
        figures = (self.total, self.needed, self.limit, self.excess, self.function)
        parts = self.amounts or self.buffers or self.warnings or self.more
        return not parts and all(figure is None for figure in figures)

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
        """Return whether another message says everything that this one does, identically."""
        own_buffers, other_buffers = self.buffers, other.buffers
        names = ("total", "needed", "limit", "excess", "function")
        return (
            (self.is_tpu, self.space) == (other.is_tpu, other.space)
            and (self.form == other.form or self.form == "array")
            and all(getattr(self, name) in (None, getattr(other, name)) for name in names)
            and self.amounts.items() <= other.amounts.items()
            and (
                own_buffers == other_buffers[: len(own_buffers)]
                or _are_alike(own_buffers, other_buffers)
            )
            and all(any(one.is_within(two) for two in other.more) for one in self.more)
            and set(self.warnings) <= set(other.warnings)
        )


def _are_alike(cut: list[Buffer], whole: list[Buffer]) -> bool:
    """Return whether buffers are those of another message whose end was cut off."""
    last = len(cut) - 1
    return (
        len(cut) <= len(whole)
        and not cut[last].is_whole
        and cut[:last] == whole[:last]
        and cut[last].size == whole[last].size
    )
