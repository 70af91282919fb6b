"""Figures of a module in a memory space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

METRICS = {
    "need": "need_bytes",
    "peak": "peak_bytes",
    "temp": "temp_bytes",
    "arguments": "argument_bytes",
    "outputs": "output_bytes",
    "constants": "constant_bytes",
    "total": "total_bytes",
    "fragmentation": "fragmentation_bytes",
}
"""Column of memory_figures for each metric."""

Place = tuple[int, int | None]
"""A module and memory space: module_id and color."""


@dataclass(frozen=True)
class MemoryFigures:
    """Figures of one module in one memory space."""

    module_id: int
    module_key: str
    function: str
    platform: str | None
    color: int | None
    """NULL for a module without any allocation."""
    memory_space: str | None
    values: Mapping[str, int | None]
    """By metric; None for what cannot be known."""
    is_device_memory: bool = True
    """Whether it is the memory of the device, which is judged unless another is named."""
    unknown_reason: str | None = None
    """Why the peak, and what hangs on it, is not known."""
    problem_count: int = 0
    """Diagnostics that say that the dump was not read in full."""

    @property
    def place(self) -> Place:
        """What the figures are of."""
        return self.module_id, self.color
