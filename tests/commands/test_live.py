"""--live: what a process leaves of the device's memory is the limit."""

import json

import pytest
from pprof_writer import Sample, packed
from small_db import insert

from bufdb.answers import live
from bufdb.answers.devices import device

MIB = 1 << 20
FRAME = ("/home/user/train.py", "main", 7)
ACCOUNT = {
    "moment": "failure", "failed_program": "jit_step", "message": "RESOURCE_EXHAUSTED",
    "requested_bytes": None, "limit_bytes": 16 * MIB, "arguments_unknown_reason": None,
    "arguments": [{"device": "cpu:0", "stack": [FRAME], "count": 1, "bytes": 4 * MIB}],
    "lost": [],
    "programs": [{"name": "jit_step", "is_failed": True, "argument_bytes": 4 * MIB,
                  "output_bytes": 0, "alias_bytes": 0, "temp_bytes": 9 * MIB, "code_bytes": 0}],
    "statistics": {},
}  # fmt: skip


@pytest.fixture
def profile(tmp_path):
    """10 MiB are alive on the device."""
    path = tmp_path / "mem.prof"
    path.write_bytes(packed([Sample(10 * MIB, [FRAME], count=2)]))
    return path


@pytest.mark.slow
def test_without_identity_everything_alive_stays(call, demo_db, profile):
    code, out, err = call("summary", "--db", demo_db, "--run", "cpu_b8", "--limit", "16MiB",
                          "--live", str(profile))  # fmt: skip
    assert code == 0
    assert "of 6.00 MiB: it does not fit" in out
    assert "6.00 MiB are left of 16.0 MiB on cpu:0 (mem.prof): 10.0 MiB stay" in err
    assert "a profile of bufdb.watch distinguishes them" in err


@pytest.mark.slow
def test_a_watched_profile_knows_the_arguments_and_the_limit(call, demo_db, profile):
    profile.with_name("mem.watch.json").write_text(json.dumps(ACCOUNT))
    _, out, err = call("summary", "--db", demo_db, "--run", "cpu_b8", "--live", str(profile))
    assert "of 10.0 MiB" in out
    assert err.endswith("10.0 MiB are left of 16.0 MiB on cpu:0 (mem.prof): 6.00 MiB stay\n")


@pytest.mark.slow
def test_a_run_has_an_account(call, demo_db):
    _, _, err = call("summary", "--db", demo_db, "--run", "cpu_b8_old", "--live", "cpu_b8")
    # Of its 12 MiB 6,318,372 bytes are alive, 2,757,120 of them arguments.
    assert "are left of 12.0 MiB on cpu:0 (cpu_b8.prof)" in err


@pytest.mark.parametrize("share", ["0.9", None])
def test_of_a_gpu_by_name_the_run_has_its_share(con, share):
    insert(con, "runs", run_name="r")
    of = {"run_name": "r", "profile_name": "memory.prof"}
    insert(con, "live_profiles", **of, program_count=0, code_bytes=0)
    insert(con, "live_arrays", **of, device="cuda:0", shape="s8[7]", total_bytes=7, array_count=1)
    if share:
        insert(con, "run_labels", run_name="r", label="memory_fraction", label_value=share)
    accounts = live.of_run(con, "r")
    limit = int(device("H100").whole_bytes * float(share or 0.75))
    assert live.left_of(accounts, "r", "H100").size_bytes == limit - 7
    assert live.left_of(accounts, "r", "100B").size_bytes == 93
    assert live.left_of(accounts, "r", "TPU v5e").size_bytes == device("TPU v5e").memory_bytes - 7


@pytest.mark.slow
def test_what_is_left_is_the_size_of_until_and_the_budget(call, demo_db, profile):
    profile.with_name("mem.watch.json").write_text(json.dumps(ACCOUNT))
    where = ["--db", demo_db, "--live", str(profile)]
    _, out, _ = call("what-if", "train_step", "--run", "cpu_b8", *where)
    assert out == call("what-if", "train_step", "--run", "cpu_b8", "--db", demo_db, "--until",
                       "10MiB")[1]  # fmt: skip
    scaling = ["query", "scaling", "--format", "csv"]
    _, out, _ = call(*scaling, *where)
    assert out == call(*scaling, "--db", demo_db, "-p", "budget", "10MiB")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["summary"], "it does not say what the device has; name that with --limit"),
        (["summary", "--limit", "9MiB"], "nothing is left of 9.00 MiB on 'cpu:0', 10.0 MiB stay"),
        (["query", "peak"], "peak: --live sets the parameter budget, where there is one"),
        (
            ["query", "scaling", "-p", "budget", "9MiB"],
            "--live is in place of the parameter budget",
        ),
        (["query", "pool"], "it takes what stays off by itself, which --live would count twice"),
        (["what-if", "train_step", "--until", "9MiB"], "--live is in place of --until"),
    ],
)
def test_wrong_use_says_what_is_wanted(call, demo_db, profile, words, message):
    code, _, err = call(*words, "--db", demo_db, "--live", str(profile))
    assert code == 2
    assert message in err


def test_a_run_without_an_account_is_said(call, demo_db):
    code, _, err = call("summary", "--db", demo_db, "--live", "cpu_b16")
    assert (code, "it does not say what a device holds" in err) == (2, True)
    code, _, err = call("fit", "a.py:f", "--live", "no.prof")
    assert (code, "--live no.prof: no such file" in err) == (2, True)
