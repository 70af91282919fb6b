"""Ranges of bytes with the time in which they are occupied."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bufdb.columnar.scan import Bools, Ints


@dataclass(frozen=True)
class Ranges:
    """Live byte ranges: row i holds [offset, offset + size) of an allocation from start to end."""

    group: Ints
    """Number of the (module, memory space), ascending from 0."""
    allocation: Ints
    """Number of the allocation within its group."""
    offset: Ints
    size: Ints
    start: Ints
    end: Ints
    """Last instant, itself included."""

    def where(self, rows: Bools | Ints) -> Ranges:
        """The ranges of these rows."""
        return Ranges(
            self.group[rows],
            self.allocation[rows],
            self.offset[rows],
            self.size[rows],
            self.start[rows],
            self.end[rows],
        )


def spans(group: Ints, groups: int) -> list[tuple[int, int]]:
    """First row of each group, and the one behind its last."""
    bounds = np.searchsorted(group, np.arange(groups + 1)).tolist()
    return list(pairwise(bounds))
