"""Reports of the BFC allocator in logs."""

import pytest

from bufdb.read.allocator_text import Report, read
from bufdb.read.amount import Amount

FRONT = "2026-03-02 10:14:07.551310: I external/xla/xla/tsl/framework/bfc_allocator.cc:{}] {}\n"
OTHER = "I0302 10:14:07.551310   71204 bfc_allocator.cc:{}] {}\n"
STATS = """Limit:                     12884901888
InUse:                      9663676416
MaxInUse:                  11811160064
NumAllocs:                      918273
MaxAllocSize:               4294967296
Reserved:                            0
PeakReserved:                        0
LargestFreeBlock:                    0

"""
LINES = [
    (1039, "BFCAllocator dump for GPU_0_bfc"),
    (1046, "Bin (256): \tTotal Chunks: 2, Chunks in use: 1. 1.0KiB allocated for chunks. 256B in "
           "use in bin. 4B client-requested in use in bin."),
    (1062, "Bin for 4.00GiB was 256.00MiB, Chunk State: "),
    (1068, "  Size: 1.00GiB | Requested Size: 1.00GiB | in_use: 0 | bin_num: 20, prev:   Size: "
           "256B | Requested Size: 4B | in_use: 1 | bin_num: -1"),
    (1075, "Next region of size 12884901888"),
    (1095, "InUse at 7f0e00000000 of size 9663676160 next 1"),
    (1095, "Free  at 7f1040000000 of size 1073741824 next 2"),
    (1095, "InUse at 7f1080000000 of size 256 next 3"),
    (1095, "Free  at 7f1080000100 of size 2147483648 next 18446744073709551615"),
    (1100, "     Summary of in-use Chunks by size: "),
    (1103, "1 Chunks of size 256 totalling 256B"),
    (1107, "Sum Total of in-use chunks: 9.00GiB"),
    (1109, "Total bytes in pool: 12884901888 memory_limit_: 12884901888 available bytes: 0 "
           "curr_region_allocation_bytes_: 25769803776"),
    (1112, "Stats: "),
]  # fmt: skip
EXPECTED = {
    "free_chunk_bytes": 3 << 30,
    "largest_free_block_bytes": 2 << 30,
    "pool_bytes": 12 << 30,
    "bytes_limit": 12 << 30,
    "bytes_in_use": 9 << 30,
    "peak_bytes_in_use": 11 << 30,
    "num_allocs": 918273,
    "largest_alloc_size": 4 << 30,
    "bytes_reserved": 0,
    "peak_bytes_reserved": 0,
}


EXPECTED = {name: Amount(value, 0) for name, value in EXPECTED.items()}
GIB = 1 << 30
CENTI = -(-GIB // 200)
"""Half of the last digit of 0.01 GiB."""


def rounded(gib):
    return Amount(round(gib * GIB), CENTI)


def text(front, lines=LINES, stats=STATS):
    return "".join(front.format(number, line) for number, line in lines) + stats


def test_free_chunks_are_added_up_in_both_forms_of_log():
    for front in (FRONT, OTHER, "{0:.0}{1}\n".replace("{0:.0}", "")):
        (report,) = read(["noise", *text(front).replace("{}", "").splitlines(), "more noise"])
        assert report == Report("GPU_0_bfc", EXPECTED)


def test_a_number_that_no_allocator_prints_is_no_statistic():
    lines = ["BFCAllocator dump for GPU_0_bfc", f"Limit: {'9' * 5000}", "InUse: 7"]
    lines.append(f"Free  at 7f1040000000 of size {'9' * 5000} next 2")
    assert read(lines) == [Report("GPU_0_bfc", {"bytes_in_use": Amount(7, 0)})]


def test_the_last_report_of_each_allocator_counts():
    first = text(FRONT, stats=STATS.replace("918273", "1"))
    other = text(FRONT).replace("GPU_0", "GPU_1")
    reports = read((first + other + text(OTHER)).splitlines())
    assert [one.allocator for one in reports] == ["GPU_0_bfc", "GPU_1_bfc"]
    assert all(one.statistics == EXPECTED for one in reports)


def test_a_largest_block_of_zero_without_chunks_says_nothing():
    lines = [line for line in LINES if "region" not in line[1] and " at " not in line[1]]
    (report,) = read(text(FRONT, lines).splitlines())
    assert "largest_free_block_bytes" not in report.statistics
    stats = STATS.replace("Block:                    0", "Block: 77")
    (kept,) = read(text(FRONT, lines, stats).splitlines())
    assert kept.statistics["largest_free_block_bytes"] == Amount(77, 0)


def test_a_full_pool_has_no_free_block():
    lines = [line for line in LINES if "Free  at" not in line[1]]
    full = STATS.replace("9663676416", str(12 << 30))
    (report,) = read(text(FRONT, lines, full).splitlines())
    of = report.statistics
    assert [of[n].size_bytes for n in ("free_chunk_bytes", "largest_free_block_bytes")] == [0, 0]


def test_chunks_of_several_processes_are_none_of_one():
    lines = [one for line in LINES for one in ([line, line] if "Free  at" in line[1] else [line])]
    (report,) = read(text(FRONT, lines).splitlines())
    assert report.statistics["bytes_in_use"] == EXPECTED["bytes_in_use"]
    assert not {"free_chunk_bytes", "largest_free_block_bytes"} & report.statistics.keys()


def test_a_log_without_a_report_has_none():
    last = "Out of memory while trying to allocate 10066329600 bytes."
    assert read([*STATS.splitlines(), last]) == []


# Since 2026 sizes are rounded, and chunks have a tag.
LATER = """I0000 00:00:1773083052.386011   70889 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 27.00GiB (rounded to 28991029248)requested by op
I0000 00:00:1773083052.386401   70889 bfc_allocator.cc:1049] BFCAllocator dump for GPU_0_bfc
I0000 00:00:1773083052.386411   70889 bfc_allocator.cc:1095] Next region of size 96390345523
I0000 00:00:1773083052.386421   70889 bfc_allocator.cc:1105] InUse at 7f0e00000000 of size 86973087744 tag lower allocation_annotation jit(f) next 1
I0000 00:00:1773083052.386431   70889 bfc_allocator.cc:1105] Free  at 7f2240000000 of size 9417257779 tag central_gap next 18446744073709551615
I0000 00:00:1773083052.386475   70889 bfc_allocator.cc:1119] Total size in pool: 89.77GiB memory_limit_: 89.77GiB available size: 153B curr_region_allocation_bytes_: 179.55GiB
I0000 00:00:1773083052.386479   70889 bfc_allocator.cc:1128] Stats:
Limit:                        89.77GiB
InUse:                        81.00GiB
MaxInUse:                     81.00GiB
NumAllocs:                           3
LargestFreeBlock:                   0B

"""  # noqa: E501


def test_rounded_sizes_keep_half_of_their_last_digit():
    (report,) = read(LATER.splitlines())
    assert report == Report(
        "GPU_0_bfc",
        {
            "requested_bytes": Amount(28991029248, 0),
            "free_chunk_bytes": Amount(9417257779, 0),
            "largest_free_block_bytes": Amount(9417257779, 0),
            "pool_bytes": rounded(89.77),
            "bytes_limit": rounded(89.77),
            "bytes_in_use": rounded(81.00),
            "peak_bytes_in_use": rounded(81.00),
            "num_allocs": Amount(3, 0),
        },
    )


def test_without_chunks_the_summary_has_the_largest_block():
    line = (
        "Allocator memory summary: rounded request 4.00GiB, total free in pool 3.00GiB, largest "
        "free chunk usable by lower end 2.00GiB, unallocated bytes 1.00GiB, pool size 12.00GiB, "
        "pool limit 13.00GiB"
    )
    (report,) = read(["BFCAllocator dump for GPU_1_bfc", line, "Limit: 13.00GiB"])
    of = report.statistics
    assert of["largest_free_block_bytes"] == rounded(2)
    assert (of["pool_bytes"], of["bytes_limit"]) == (rounded(12), rounded(13))
    assert of["requested_bytes"] == rounded(4)


BIN = (
    "Bin ({}): \tTotal Chunks: {}, Chunks in use: {}. {} allocated for chunks. {} in use in bin. "
    "{} client-requested in use in bin."
)


def of_bins(*lines, free):
    stats = [f"Total bytes in pool: {9 * GIB} memory_limit_: 1", f"InUse: {9 * GIB - free}"]
    (report,) = read(["BFCAllocator dump for GPU_0_bfc", *lines, *stats])
    return report.statistics.get("largest_free_block_bytes")


SMALL, LARGE = BIN.format(256, 2, 1, "1.0KiB", "256B", "4B"), GIB // 4


def test_bins_bound_the_largest_block():
    # Three chunks of 256 MiB or more are free, 6 GiB in all: the largest has 2 GiB to 5.5 GiB.
    line = BIN.format(LARGE, 4, 1, "8.00GiB", "2.00GiB", "2.00GiB")
    block = of_bins(SMALL, line, free=6 * GIB + 768)
    assert block.size_bytes - block.slack_bytes == pytest.approx(2 * GIB, abs=2 * CENTI)
    assert block.size_bytes + block.slack_bytes == pytest.approx(5.5 * GIB, abs=2 * CENTI)


def test_a_free_chunk_by_itself_is_the_block_as_printed():
    line = BIN.format(LARGE, 2, 1, "4.00GiB", "1.00GiB", "1.00GiB")
    assert of_bins(SMALL, line, free=3 * GIB + 768) == Amount(3 * GIB, 2 * CENTI)
    # A gap of the allocator is in no bin.
    assert of_bins(SMALL, line, free=4 * GIB) is None


def test_bins_without_free_chunks_have_no_block():
    assert of_bins(BIN.format(256, 1, 1, *["1.0KiB"] * 3), free=0) is None


ASYNC = """E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:332] gpu_async_0 cuMemAllocAsync failed to allocate 126257359472 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory
 Reported by CUDA: Free memory/Total memory: 18801229824/197890015232
E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:337] Stats: Limit:                    148417511424
InUse:                     19380000000
MaxInUse:                 145640000000
E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:94] CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: 148417544192
E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:96] CU_MEMPOOL_ATTR_USED_MEM_CURRENT: 19380000256
E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:98] CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: 154446856192
E0820 01:02:03.4 9 gpu_cudamallocasync_allocator.cc:99] CU_MEMPOOL_ATTR_USED_MEM_HIGH: 145640000256
"""  # noqa: E501


def test_the_allocator_of_cuda_says_what_the_device_has():
    (report,) = read(ASYNC.splitlines())
    assert report.allocator == "gpu_async_0"
    assert {name: amount.size_bytes for name, amount in report.statistics.items()} == {
        "requested_bytes": 126257359472,
        "device_free_bytes": 18801229824,
        "device_total_bytes": 197890015232,
        "bytes_limit": 148417511424,
        "bytes_in_use": 19380000000,
        "peak_bytes_in_use": 145640000000,
        "pool_bytes": 148417544192,
        "peak_pool_bytes": 154446856192,
    }


def test_what_is_set_aside_at_the_start_is_a_limit():
    front = "I0000 00:00:1745543868.274817 1243516 gpu_helpers.cc:136] "
    lines = [
        f"{front}XLA backend allocating 3825205248 bytes on device 0 for BFCAllocator.",
        f"{front}XLA backend will use up to 1275068416 bytes on device 0 for "
        "CollectiveBFCAllocator.",
    ]
    assert read(lines) == [
        Report("GPU_0_bfc", dict.fromkeys(("bytes_limit", "preallocated_bytes"),
                                          Amount(3825205248, 0))),
        Report("GPU_collectivememory_0_bfc", {"bytes_limit": Amount(1275068416, 0)}),
    ]  # fmt: skip
    # A later report of the allocator has its limit, too, and keeps what was set aside.
    (report,) = read([lines[0], "BFCAllocator dump for GPU_0_bfc", "Limit: 7"])
    assert report.statistics["preallocated_bytes"] == Amount(3825205248, 0)
    assert report.statistics["bytes_limit"] == Amount(7, 0)
