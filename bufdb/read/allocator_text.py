"""Reports of XLA's BFC allocator in logs: what it holds, and how its free memory is split.

Text of `BFCAllocator::DumpMemoryLog` and `AllocatorStats::DebugString`, which a GPU's process logs
when an allocation fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_BEGIN = re.compile(r"BFCAllocator dump for (\S+)\s*$")
_REGION = re.compile(r"(?:^|\] )Next region of size \d{1,19}\s*$")
_CHUNK = re.compile(r"(?:^|\] )(InUse|Free ) at \w+ of size (\d{1,19})(?: by op .*)? next \d+\s*")
_POOL = re.compile(r"(?:^|\] )Total bytes in pool: (\d{1,19}) ")
_STATISTIC = re.compile(r"^(\w+):\s+(-?\d{1,19})\s*$")
_NAMES = {
    "Limit": "bytes_limit",
    "InUse": "bytes_in_use",
    "MaxInUse": "peak_bytes_in_use",
    "NumAllocs": "num_allocs",
    "MaxAllocSize": "largest_alloc_size",
    "Reserved": "bytes_reserved",
    "PeakReserved": "peak_bytes_reserved",
    "LargestFreeBlock": "largest_free_block_bytes",
}
"""JAX's names of the lines below "Stats:"."""
_LARGEST, _FREE, _POOL_BYTES = "largest_free_block_bytes", "free_chunk_bytes", "pool_bytes"


@dataclass
class Report:
    """The last report of an allocator."""

    allocator: str
    """Such as GPU_0_bfc."""
    statistics: dict[str, int] = field(default_factory=dict)
    """As of device.memory_stats(); and free_chunk_bytes, the sum of its free chunks."""


def read(lines: Iterable[str], kept: list[str] | None = None) -> list[Report]:
    """Return the last report of each allocator in the lines of a log, in order of their first.

    Lines of reports are added to `kept`.
    """
    reports: dict[str, Report] = {}
    report: Report | None = None
    for line in lines:
        begin = _BEGIN.search(line)
        if begin is not None:
            report = reports[begin[1]] = Report(begin[1])
        is_read = begin is not None or (report is not None and _add(report.statistics, line))
        if kept is not None and is_read:
            kept.append(line)
    for one in reports.values():
        # The allocator does not always keep it up to date: 0 says nothing.
        if one.statistics.get(_LARGEST) == 0 and _FREE not in one.statistics:
            del one.statistics[_LARGEST]
    return list(reports.values())


def _add(statistics: dict[str, int], line: str) -> bool:
    """Take a line of a report; return whether it says anything."""
    if _REGION.search(line) is not None:
        statistics.setdefault(_FREE, 0)
        statistics.setdefault(_LARGEST, 0)
    elif (chunk := _CHUNK.search(line)) is not None:
        if chunk[1] != "InUse":
            statistics[_FREE] = statistics.get(_FREE, 0) + int(chunk[2])
            statistics[_LARGEST] = max(statistics.get(_LARGEST, 0), int(chunk[2]))
    elif (pool := _POOL.search(line)) is not None:
        statistics[_POOL_BYTES] = int(pool[1])
    elif (match := _STATISTIC.match(line)) is not None and match[1] in _NAMES:
        name = _NAMES[match[1]]
        if name != _LARGEST or _FREE not in statistics:
            statistics[name] = int(match[2])
    else:
        return False
    return True
