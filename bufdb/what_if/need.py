"""What a device must hold after a change: what XLA reserves for the values that are left."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.memory.ranges import Ranges
from bufdb.what_if.arena import arena_bytes
from bufdb.what_if.choice import Choice
from bufdb.what_if.model import Height, Model
from bufdb.what_if.temps import Temps

MOST_VALUES = 5_000
"""Placing values again takes time that grows with their square: a second or two for so many."""
TOLERANCE = 200
"""The arena can be computed again if that gives today's but for this part of it."""


@dataclass(frozen=True)
class Need:
    """Bytes that a device must hold, as a range; one figure where the arena was computed again."""

    low_bytes: int
    high_bytes: int


class Arena:
    """The temp allocations of a module, to be computed again for the values that are left.

    Where that gives today's size for today's values, what it gives for others is the need. Where it
    does not, the need lies from the peak up to the peak and today's holes, if XLA packs no worse.
    """

    def __init__(self, choice: Choice, temps: Temps, keep: Fraction) -> None:
        self.today = Need(choice.need_bytes, choice.need_bytes)
        self._ranges, self._keep = temps.ranges, keep
        self._holes = choice.need_bytes - choice.peak_bytes
        reserved = choice.need_bytes - choice.fixed_bytes
        self._besides: int | None = None
        """Bytes that XLA reserves and that are of no value; None if it cannot be computed."""
        if len(temps.ranges.size) <= MOST_VALUES:
            found = arena_bytes(temps.ranges)
            if abs(reserved - found) * TOLERANCE <= reserved:
                self._besides = reserved - found

    def without(self, away: Ints, model: Model, height: Height) -> Need:
        """The need without some values; `height` is the peak then."""
        peak = height.peak_bytes
        if self._besides is None or model.donated:
            return Need(peak, peak + self._holes)
        found = model.fixed_bytes + self._besides + arena_bytes(self._left(away))
        return Need(max(peak, found), max(peak, found))

    def _left(self, away: Ints) -> Ranges:
        size = self._ranges.size.copy()
        above, below = self._keep.as_integer_ratio()
        size[away] = [-(-bytes_ * above // below) for bytes_ in size[away].tolist()]
        columns = {**vars(self._ranges), "size": size}
        return Ranges(**columns).where(np.flatnonzero(size > 0))
