"""Sentences about the pool of a device."""

import pytest

from bufdb.answers import pool

GIB = 1 << 30
ROW = {
    "function_name": "train_step", "arena_bytes": 1257 * GIB // 10, "low_block_bytes": None,
    "block_bytes": 1202 * GIB // 10, "low_stay_bytes": 181 * GIB // 10,
    "stay_bytes": 181 * GIB // 10, "fit": "no", "planned_bytes": None, "planned_source": None,
    "slop_factor": None, "fitting_slop_factor": None, "fitting_arena_bytes": None,
    "outside_bytes": None, "output_bytes": 0, "limit_bytes": 1383 * GIB // 10,
}  # fmt: skip
WANTS = (
    "train_step wants 125.7 GiB in one piece, at most 120.2 GiB are free after 18.1 GiB that stay"
)
FACTOR = {
    "planned_bytes": 1269 * GIB // 10, "planned_source": "computed", "slop_factor": 95,
    "fitting_slop_factor": 85, "fitting_arena_bytes": 1136 * GIB // 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, [f"{WANTS}: it does not fit"]),
        ({"fit": "possible"}, [f"{WANTS}: whether it fits is not known"]),
        (
            {"low_block_bytes": 2 * GIB, "block_bytes": 2 * GIB, "fit": "yes", "arena_bytes": GIB,
             "stay_bytes": 20 * GIB, "function_name": None},
            ["the request that failed wants 1.000 GiB in one piece, 2.000 GiB are free after at "
             "least 18.1 GiB that stay: it fits"],
        ),
        (
            FACTOR,
            [f"{WANTS}: it does not fit",
             "XLA planned 126.9 GiB for it: --xla_gpu_memory_limit_slop_factor=85 makes that 113.6 "
             "GiB (it is 95)"],
        ),
        (
            {**FACTOR, "planned_source": "warning", "fitting_slop_factor": None},
            [f"{WANTS}: it does not fit",
             "XLA planned 126.9 GiB for it and warned that it cannot reach that"],
        ),
        # Outputs may be in several pieces, and in what is free beyond the largest one.
        (
            {"arena_bytes": 0, "output_bytes": 130 * GIB},
            ["train_step wants 130.0 GiB for its outputs, at most 120.2 GiB are free after 18.1 "
             "GiB that stay: it does not fit"],
        ),
        (
            {"arena_bytes": 50 * GIB, "output_bytes": 90 * GIB, "block_bytes": 60 * GIB},
            ["train_step wants 50.00 GiB in one piece and 90.00 GiB for its outputs, at most 120.2 "
             "GiB are free after 18.1 GiB that stay: it does not fit"],
        ),
        ({"arena_bytes": None}, []),
        ({"block_bytes": None, "fit": None}, []),
    ],
)  # fmt: skip
def test_the_sentence_says_what_decides(cells, expected):
    assert pool.sentences([{**ROW, **cells}]) == expected


def test_the_program_is_named_rather_than_its_request():
    rows = [{**ROW, "function_name": None}, ROW]
    assert pool.sentences(rows)[0].startswith("train_step wants")
