"""Bytes that XLA reserves for temporaries."""

import numpy as np
import pytest

from bufdb.memory.ranges import Ranges
from bufdb.what_if.model import arena_bytes, buffers


def ranges(*rows):
    """Rows of (allocation, offset, size, start, end)."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return Ranges(np.zeros(len(rows), np.int64), *columns)


def test_nothing_takes_nothing():
    assert arena_bytes(ranges()) == 0


def test_values_one_after_another_take_the_place_of_the_largest():
    assert arena_bytes(ranges((0, 0, 64, 0, 1), (0, 64, 128, 2, 3), (0, 192, 64, 4, 5))) == 128


def test_an_end_is_lived_through():
    assert arena_bytes(ranges((0, 0, 64, 0, 2), (0, 64, 64, 2, 3))) == 128


def test_overlapping_values_at_one_byte_are_one_buffer():
    merged = buffers(ranges((0, 0, 64, 0, 3), (0, 0, 32, 3, 5), (0, 0, 64, 7, 9), (1, 0, 8, 0, 9)))
    assert [column.tolist() for column in vars(merged).values()] == [
        [0, 0, 0], [0, 0, 1], [0, 0, 0], [64, 64, 8], [0, 7, 0], [5, 9, 9],
    ]  # fmt: skip


def test_the_smallest_gap_is_taken_and_holes_count():
    # The largest two first, above each other; what lives with the upper one alone goes below it.
    rows = [(0, 0, 256, 0, 2), (0, 256, 128, 2, 9), (0, 0, 192, 5, 9)]
    assert arena_bytes(ranges(*rows)) == 384


def test_allocations_are_placed_apart():
    assert arena_bytes(ranges((0, 0, 64, 0, 1), (1, 0, 64, 2, 3))) == 128


@pytest.mark.parametrize("run", ["cpu_b8", "cpu_b16", "cpu_b8_remat", "cpu_b8_old", "gpu_b8"])
def test_it_gives_what_xla_reserved(demo, run):
    rows = demo.execute(
        "SELECT allocation_index, begin_bytes, size_bytes, start_time, end_time FROM temp_values "
        "JOIN modules USING (module_id) WHERE run_name = ? AND function_name = 'train_step'",
        [run],
    ).fetchall()
    reserved = demo.execute(
        "SELECT sum(temp_bytes)::BIGINT FROM memory_figures WHERE run_name = ? "
        "AND function_name = 'train_step'",
        [run],
    ).fetchone()
    # XLA reserves some bytes more, which are of no value.
    assert 0 <= reserved[0] - arena_bytes(ranges(*rows)) < 4096
