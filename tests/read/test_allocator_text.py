"""Reports of the BFC allocator in logs."""

from bufdb.read.allocator_text import Report, read

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


def text(front, lines=LINES, stats=STATS):
    return "".join(front.format(number, line) for number, line in lines) + stats


def test_free_chunks_are_added_up_in_both_forms_of_log():
    for front in (FRONT, OTHER, "{0:.0}{1}\n".replace("{0:.0}", "")):
        (report,) = read(["noise", *text(front).replace("{}", "").splitlines(), "more noise"])
        assert report == Report("GPU_0_bfc", EXPECTED)


def test_a_number_that_no_allocator_prints_is_no_statistic():
    lines = ["BFCAllocator dump for GPU_0_bfc", f"Limit: {'9' * 5000}", "InUse: 7"]
    lines.append(f"Free  at 7f1040000000 of size {'9' * 5000} next 2")
    assert read(lines) == [Report("GPU_0_bfc", {"bytes_in_use": 7})]


def test_the_last_report_of_each_allocator_counts():
    first = text(FRONT, stats=STATS.replace("9663676416", "1"))
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
    assert kept.statistics["largest_free_block_bytes"] == 77


def test_a_full_pool_has_no_free_block():
    lines = [line for line in LINES if "Free  at" not in line[1]]
    (report,) = read(text(FRONT, lines).splitlines())
    of = report.statistics
    assert (of["free_chunk_bytes"], of["largest_free_block_bytes"]) == (0, 0)


def test_a_log_without_a_report_has_none():
    last = "Out of memory while trying to allocate 10066329600 bytes."
    assert read([*STATS.splitlines(), last]) == []
