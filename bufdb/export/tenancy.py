"""Who has which bytes of the temp allocations when, each byte at each instant with one tenant.

Values share bytes: what a loop carries with what is put in, and at the instant at which one value
ends and the next begins. A byte belongs to the value that has been live longest of those that cover
it; when that ends, to the next. So tenancies at an instant add up to the bytes that are occupied
then, as `occupancy_steps` has them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bufdb.export.values import HloValue


@dataclass(frozen=True)
class Tenancy:
    """Bytes of an allocation that are one value's for a while."""

    value: HloValue
    offset_bytes: int
    size_bytes: int
    start_time: int
    end_time: int
    """Last instant, itself included [program order]."""


def tenancies(values: Iterable[HloValue], schedule_length: int) -> list[Tenancy]:
    """The tenancies of temp values, in order of their beginning.

    Args:
        values: of any kind; those of other allocations, without a live range or without bytes
            are left out.
        schedule_length: the last instant that counts.
    """
    by_allocation: dict[int, list[tuple[int, int, HloValue]]] = defaultdict(list)
    for value in values:
        start, end = value.start_time, value.end_time
        if value.allocation_kind != "temp" or value.size_bytes <= 0 or start is None or end is None:
            continue
        if start <= min(end, schedule_length):
            by_allocation[value.allocation_index].append((start, end, value))
    found = [part for items in by_allocation.values() for part in _Allocation().parts(items)]
    key = lambda part: (part.start_time, part.value.allocation_index, part.offset_bytes)  # noqa: E731
    return sorted(found, key=key)


class _Allocation:
    """One allocation, while time goes on."""

    def __init__(self) -> None:
        self.held: list[tuple[int, Tenancy]] = []
        """Present tenancies by offset, which are disjoint; open at the end."""
        self.waiting: dict[int, HloValue] = {}
        """Live values of which a part is another's, longest live first."""
        self.done: list[Tenancy] = []

    def parts(self, items: list[tuple[int, int, HloValue]]) -> list[Tenancy]:
        """All tenancies of these values (start, end, value)."""
        starts: dict[int, list[HloValue]] = defaultdict(list)
        leaves: dict[int, list[HloValue]] = defaultdict(list)
        for start, end, value in items:
            starts[start].append(value)
            leaves[end + 1].append(value)
        for time in sorted(starts.keys() | leaves.keys()):
            for value in leaves[time]:
                self.waiting.pop(value.value_id, None)
            for value in leaves[time]:
                self._leave(value, time)
            for value in sorted(starts[time], key=lambda item: (-item.size_bytes, item.value_id)):
                self._claim(value, value.offset_bytes, value.offset_bytes + value.size_bytes, time)
        return self.done

    def _claim(self, value: HloValue, low: int, high: int, time: int) -> None:
        """Give a value those of the bytes that are nobody's."""
        place = max(0, bisect_right(self.held, low, key=lambda pair: pair[0]) - 1)
        taken = []
        for offset, part in self.held[place:]:
            if offset >= high:
                break
            if offset + part.size_bytes > low:
                taken.append((offset, offset + part.size_bytes))
        for first, last in [*taken, (high, high)]:
            if first > low:
                part = Tenancy(value, low, first - low, time, time)
                insort(self.held, (low, part), key=lambda pair: pair[0])
            low = max(low, last)
        if taken:
            self.waiting.setdefault(value.value_id, value)

    def _leave(self, value: HloValue, time: int) -> None:
        """End a value; its bytes are those of the values that wait for them."""
        first, end = value.offset_bytes, value.offset_bytes + value.size_bytes
        low = bisect_right(self.held, first - 1, key=lambda pair: pair[0])
        high = bisect_right(self.held, end - 1, key=lambda pair: pair[0])
        mine = [part for _, part in self.held[low:high] if part.value is value]
        self.held[low:high] = [pair for pair in self.held[low:high] if pair[1].value is not value]
        self.done += [replace(part, end_time=time - 1) for part in mine]
        for part in mine:
            low, high = part.offset_bytes, part.offset_bytes + part.size_bytes
            for other in list(self.waiting.values()):
                other_end = other.offset_bytes + other.size_bytes
                if other.offset_bytes < high and other_end > low:
                    self._claim(other, max(low, other.offset_bytes), min(high, other_end), time)
