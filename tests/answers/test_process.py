"""The account of a process as text, and in the summary."""

import json

import pytest
from ingesting import ingest_into
from places import DEMO
from pprof_writer import Sample, packed

from bufdb.answers import process, summary, summary_text

FRAMES = [("/home/user/eval.py", "cache_metrics", 41)]
MIB = 1 << 20


def account(con, **filters):
    return process.text(process.accounts(con, filters, 2))


def stored(con, folder, samples, watched=None, log=None, run="cpu_b8"):
    (folder / "mem.prof").write_bytes(packed(samples))
    if watched is not None:
        (folder / "mem.watch.json").write_text(json.dumps(watched))
    if log is not None:
        (folder / "mem.log").write_text(log)
    ingest_into(con, folder / "mem.prof", run)


def test_without_a_profile_there_is_nothing_to_say(con):
    assert account(con) == []


@pytest.mark.slow
def test_a_range_says_why_it_is_one(con, tmp_path):
    ingest_into(con, DEMO / "cpu_b8")
    stored(con, tmp_path, [Sample(3 * MIB, FRAMES, count=12), Sample(MIB)])
    first, *_ = account(con, run="cpu_b8")
    assert first.startswith(
        "train_step: the plan needs 8.49 MiB; alive: 4.00 MiB, 3.12 MiB to 4.00"
    )
    text = " ".join(account(con))
    assert "largest cache_metrics eval.py:41" in text
    assert "3.00 MiB  cache_metrics eval.py:41 (12 arrays)" in text
    assert "holds at the most 12.5 MiB, 1.47 times the plan" in " ".join(text.split())
    assert "which arrays are arguments is not known: the program wrote the profile" in text


WATCHED = {
    "moment": "failure", "failed_program": "jit_f", "message": "x", "requested_bytes": None,
    "limit_bytes": 100 * MIB, "arguments_unknown_reason": None, "arguments": [], "lost": [],
    "programs": [{"name": "jit_f", "is_failed": True, "argument_bytes": 0, "output_bytes": 0,
                  "alias_bytes": 0, "temp_bytes": 40 * MIB, "code_bytes": 0}],
    "statistics": {"gpu:0": {"bytes_in_use": 50 * MIB, "bytes_limit": 90 * MIB}},
}  # fmt: skip
LOG = """BFCAllocator dump for GPU_0_bfc
Next region of size 94371840
InUse at 7f0e00000000 of size 52428800 next 1
Free  at 7f1040000000 of size 31457280 next 2
Free  at 7f1040000000 of size 10485760 next 3
"""


def test_the_allocator_holds_more_than_arrays(con, tmp_path):
    stored(con, tmp_path, [Sample(30 * MIB, FRAMES, "gpu:0")], WATCHED, LOG)
    lines = account(con)
    text = " ".join(" ".join(lines).split())
    assert "the plan needs 40.0 MiB; alive when it failed: 30.0 MiB, all of it" in text
    assert "the process holds 70.0 MiB, 1.75 times the plan, 70.0% of 100 MiB" in text
    assert lines[-2:] == [
        "the allocator: in use beyond 20.0 MiB, free 40.0 MiB, 10.0 MiB of it not in the",
        "  largest free block",
    ]


def test_code_of_unknown_size_is_beyond_arrays(con, tmp_path):
    samples = [Sample(30 * MIB, FRAMES, "gpu:0"), Sample(-1, kind="executable")]
    stored(con, tmp_path, samples, WATCHED)
    assert account(con)[-2:] == [
        "the allocator: in use beyond 20.0 MiB with code, whose size is not known, free",
        "  40.0 MiB",
    ]


def test_several_devices_are_named(con, tmp_path):
    stored(con, tmp_path, [Sample(1, FRAMES, "gpu:0"), Sample(2, FRAMES, "gpu:1")])
    lines = account(con)
    assert [line for line in lines if line.startswith("gpu")] == ["gpu:0:", "gpu:1:"]


@pytest.mark.slow
def test_the_summary_has_the_account_of_the_last_one(con, tmp_path):
    ingest_into(con, DEMO / "cpu_b8")
    before = summary.overview(con, {}, {})
    assert before.accounts == [] and summary_text.as_dict(before)["process"] == []
    stored(con, tmp_path, [Sample(3 * MIB, FRAMES)])
    overview = summary.overview(con, {}, {})
    text = summary_text.text(overview)
    assert "what the process holds (mem.prof, cpu:0)\ntrain_step: the plan needs" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert summary_text.as_dict(overview)["process"][0]["alive_bytes"] == 3 * MIB


@pytest.mark.slow
def test_the_run_is_named_where_there_are_several(con, tmp_path):
    for name in ("cpu_b8", "cpu_b16"):
        ingest_into(con, DEMO / name)
    stored(con, tmp_path, [Sample(3 * MIB, FRAMES)])
    stored(con, tmp_path, [Sample(3, FRAMES, "cpu:1"), Sample(2, FRAMES)], run="z")
    text = summary_text.text(summary.overview(con, {}, {}))
    assert "what the process holds (run z, mem.prof, cpu:1)" in text
    assert "2 other profiles or devices: 'bufdb query process'" in text


def test_names_of_others_reach_no_terminal_as_control_sequences(con, tmp_path):
    stored(con, tmp_path, [Sample(7, [("/a\x1b[31m.py", "f\x1b[0m", 1)])])
    assert "\x1b" not in "".join(account(con))


def test_a_summary_of_a_profile_alone_mentions_no_dumps(con, tmp_path):
    stored(con, tmp_path, [Sample(3 * MIB, FRAMES)])
    lines = summary_text.text(summary.overview(con, {}, {})).splitlines()
    assert lines[0] == "no dumps of programs, memory profiles alone"
    assert lines[2] == "what the process holds (mem.prof, cpu:0)"
