"""Reports of the allocators of GPUs in logs: what they hold, and how their free memory is split.

Text of XLA's `BFCAllocator::DumpMemoryLog`, `AllocatorStats::DebugString` and
`GpuCudaMallocAsyncAllocator`, which a GPU's process logs when an allocation fails, and of
`gpu_helpers.cc`, which logs what an allocator may take when it is made (format section 9.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from bufdb.read.amount import PATTERN, Amount, amount_of

_BYTES = r"\d{1,19}"
_BEGIN = re.compile(
    rf"(?P<dump>BFCAllocator dump for )(?P<bfc>\S+)\s*$"
    rf"|Allocator \((?P<failed>\S+)\) ran out of memory trying to allocate {PATTERN}"
    rf" \(rounded to (?P<rounded>{_BYTES})\)"
    rf"|\b(?P<async>gpu_async_\d+) cuMemAllocAsync failed to allocate (?P<request>{_BYTES}) bytes"
)
_MADE = re.compile(
    rf"XLA backend (?P<how>allocating|will use up to) (?P<size>{_BYTES}) bytes on device"
    r" (?P<device>\d{1,4}) for (?P<collective>Collective)?BFCAllocator"
)
TITLES = (
    r"BFCAllocator dump for |ran out of memory trying to allocate \d|cuMemAllocAsync failed to "
    r"|XLA backend (?:allocating|will use up to) \d+ bytes on device "
)
"""A log with a report has one of these."""
_REGION = re.compile(rf"(?:^|\] )Next region of size {_BYTES}\s*$")
_CHUNK = re.compile(rf"(?:^|\] )(InUse|Free ) at \w+ of size ({_BYTES})(?: .*)? next \d+\s*")
_BIN = re.compile(
    rf"(?:^|\] )Bin \((?P<least>{_BYTES})\):\s+Total Chunks: (?P<chunks>\d{{1,9}}), "
    rf"Chunks in use: (?P<used>\d{{1,9}})\.? (?P<size>{PATTERN}) allocated for chunks\."
    rf".*? (?P<use>{PATTERN}) in use in bin"
)
_POOL = re.compile(
    rf"(?:^|\] )Total (?:bytes|size) in pool: (?P<pool_bytes>{_BYTES} |{PATTERN})"
    rf"|Allocator memory summary: rounded request (?P<requested_bytes>{PATTERN}), .*"
    rf"largest free chunk usable by \w+ end (?P<largest_free_block_bytes>{PATTERN}), .*"
    rf"pool size (?P<size>{PATTERN})"
    rf"|Reported by CUDA: Free memory/Total memory: (?P<device_free_bytes>{_BYTES})/"
    rf"(?P<device_total_bytes>{_BYTES})"
)
_STATISTIC = re.compile(
    rf"^(?:.*\] )?(?:Stats: *)?(?P<name>\w+):\s+(?P<value>-?{_BYTES}|{PATTERN})\s*$"
)
_NAMES = {
    "Limit": "bytes_limit",
    "InUse": "bytes_in_use",
    "MaxInUse": "peak_bytes_in_use",
    "NumAllocs": "num_allocs",
    "MaxAllocSize": "largest_alloc_size",
    "Reserved": "bytes_reserved",
    "PeakReserved": "peak_bytes_reserved",
    "LargestFreeBlock": "largest_free_block_bytes",
    "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT": "pool_bytes",
    "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH": "peak_pool_bytes",
}
"""JAX's names of the lines below "Stats:", and of CUDA's attributes of its pool."""
_LARGEST, _FREE, _LIMIT = "largest_free_block_bytes", "free_chunk_bytes", "bytes_limit"
_REQUESTED, _POOL_BYTES = "requested_bytes", "pool_bytes"
_PREALLOCATED = "preallocated_bytes"


@dataclass
class Report:
    """The last report of an allocator."""

    allocator: str
    """Such as GPU_0_bfc, GPU_collectivememory_0_bfc or gpu_async_0."""
    statistics: dict[str, Amount] = field(default_factory=dict)
    """As of device.memory_stats(); and free_chunk_bytes, the sum of its free chunks;
    requested_bytes, what it had no room for; preallocated_bytes, set aside when it was made;
    device_free_bytes and device_total_bytes, of the whole device by CUDA."""


def read(lines: Iterable[str], kept: list[str] | None = None) -> list[Report]:
    """Return the last report of each allocator in the lines of a log, in order of their first.

    Lines of reports are added to `kept`.
    """
    reports: dict[str, _Reader] = {}
    reader: _Reader | None = None
    for line in lines:
        if made := _MADE.search(line):
            name = f"GPU_{'collectivememory_' if made['collective'] else ''}{made['device']}_bfc"
            reports.setdefault(name, _Reader(name)).make(made)
        elif begin := _BEGIN.search(line):
            name = begin["bfc"] or begin["failed"] or begin["async"]
            reader = reports.setdefault(name, _Reader(name))
            reader.begin(begin)
        elif reader is None or not reader.add(line):
            continue
        if kept is not None:
            kept.append(line)
    return [reader.report() for reader in reports.values()]


class _Reader:
    """The lines of one allocator; those of its last failure count."""

    def __init__(self, allocator: str) -> None:
        self.allocator = allocator
        self.made: dict[str, Amount] = {}
        """Of the allocator at any time: what it may take, and set aside."""
        self.statistics: dict[str, Amount] = {}
        self.chunks: dict[str, Amount] = {}
        """Of its free chunks, exact."""
        self.block: Amount | None = None
        """The largest free block by the bins; the last bin has the largest chunks."""
        self.binned = Amount(0, 0)
        """What is free in all bins."""

    def make(self, line: re.Match[str]) -> None:
        self.made[_LIMIT] = Amount(int(line["size"]), 0)
        if line["how"] == "allocating":
            self.made[_PREALLOCATED] = self.made[_LIMIT]

    def begin(self, line: re.Match[str]) -> None:
        """Begin a report; the failed request is in a line of its own above it."""
        requested = line["rounded"] or line["request"]
        kept = {_REQUESTED: self.statistics[_REQUESTED]} if _REQUESTED in self.statistics else {}
        self.statistics, self.chunks = {} if requested else kept, {}
        self.block, self.binned = None, Amount(0, 0)
        if requested:
            self.statistics[_REQUESTED] = Amount(int(requested), 0)

    def add(self, line: str) -> bool:
        """Take a line of a report; return whether it says anything."""
        if _REGION.search(line) is not None:
            for name in (_FREE, _LARGEST):
                self.chunks.setdefault(name, Amount(0, 0))
        elif (chunk := _CHUNK.search(line)) is not None:
            if chunk[1] != "InUse":
                size = Amount(int(chunk[2]), 0)
                self.chunks[_FREE] = self.chunks.get(_FREE, Amount(0, 0)) + size
                largest = self.chunks.get(_LARGEST, size)
                self.chunks[_LARGEST] = max(largest, size, key=lambda one: one.size_bytes)
        elif (of_bin := _BIN.search(line)) is not None:
            free = _free(of_bin)
            self.binned += free
            self.block = _block(of_bin, free) or self.block
        elif (pool := _POOL.search(line)) is not None:
            for name, text in pool.groupdict().items():
                if text is not None:
                    # What is known exactly is not replaced by a rounded size.
                    self._take(_POOL_BYTES if name == "size" else name, text, is_new=True)
        elif (match := _STATISTIC.match(line)) is not None and match["name"] in _NAMES:
            self._take(_NAMES[match["name"]], match["value"])
        else:
            return False
        return True

    def _take(self, name: str, text: str, *, is_new: bool = False) -> None:
        text = text.strip()
        is_plain = text.lstrip("-").isdigit()
        amount = Amount(int(text), 0) if is_plain else amount_of(text)
        if amount is not None and not (is_new and name in self.statistics):
            self.statistics[name] = amount

    def report(self) -> Report:
        """Return what is known at the end of the log."""
        statistics = {**self.made, **self.statistics}
        # The allocator does not always keep it up to date: 0 says nothing.
        if _LARGEST in statistics and not statistics[_LARGEST].size_bytes:
            del statistics[_LARGEST]
        # Several processes may write in turn, a log be cut, and a gap of the allocator in no bin.
        if self.block is not None and self._is_all_free(self.binned) is True:
            statistics.setdefault(_LARGEST, self.block)
        if _FREE in self.chunks and self._is_all_free(self.chunks[_FREE]) is not False:
            statistics |= self.chunks
        return Report(self.allocator, statistics)

    def _is_all_free(self, free: Amount) -> bool | None:
        """Return whether these bytes are all of the pool that is free; None if not known."""
        pool, used = (self.statistics.get(name) for name in (_POOL_BYTES, "bytes_in_use"))
        if pool is None or used is None:
            return None
        slack = pool.slack_bytes + used.slack_bytes + free.slack_bytes
        return abs(pool.size_bytes - used.size_bytes - free.size_bytes) <= slack


def _free(line: re.Match[str]) -> Amount:
    """Return what is free in a bin."""
    size, use = (amount_of(line[name]) or Amount(0, 0) for name in ("size", "use"))
    return Amount(max(0, size.size_bytes - use.size_bytes), size.slack_bytes + use.slack_bytes)


def _block(line: re.Match[str], free: Amount) -> Amount | None:
    """Return the largest free block of a bin, whose chunks have at least its size, as a range."""
    free_count = int(line["chunks"]) - int(line["used"])
    if free_count <= 1:
        return free if free_count == 1 else None
    least = max(int(line["least"]), (free.size_bytes - free.slack_bytes) // free_count)
    most = free.size_bytes + free.slack_bytes - (free_count - 1) * int(line["least"])
    return Amount((least + max(least, most)) // 2, (max(least, most) - least + 1) // 2)
