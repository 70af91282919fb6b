"""Predicted and actual effects of a change, on the demo runs and on rows made by hand."""

import json
import shlex
import shutil
import sys

import pytest
from places import ROOT

from bufdb.what_if import verify
from bufdb.what_if.verify import Promise, _Buffer, _change


@pytest.fixture
def ask(call, demo_db):
    return lambda *words: call("verify", *words, "--db", demo_db)


def rows(ask, *words):
    code, out, err = ask(*words, "--format", "json")
    return code, json.loads(out), err


@pytest.mark.slow
def test_a_change_that_was_made_is_held_to_what_was_promised(ask):
    """The demo's scan with its body checkpointed."""
    code, result_rows, err = rows(ask, "cpu_b8", "cpu_b8_remat")
    assert (code, err) == (0, "")
    assert {row["function_name"] for row in result_rows} == {"train_step"}
    peak = next(row for row in result_rows if row["what"] == "peak")
    assert (peak["base_bytes"], peak["new_bytes"]) == (8905504, 6391500)
    assert peak["got_bytes"] == 2514004
    assert peak["low_saving_bytes"] <= peak["got_bytes"] <= peak["saving_bytes"]
    assert peak["is_in_range"] is True
    block = next(row for row in result_rows if row["what"] == "block")
    assert (block["promised_by"], block["sureness"]) == ("advice", "possible")
    assert (block["low_saving_bytes"], block["saving_bytes"]) == (2113976, 2514008)
    gone = {row["name"]: row for row in result_rows if row["kind"] == "residual"}
    assert set(gone) == {f"saved /home/user/model/train.py:{line}" for line in (65, 66)}
    assert all(row["new_bytes"] == 0 < row["base_bytes"] for row in gone.values())


@pytest.mark.slow
def test_promises_of_lines_are_those_of_what_if(ask, call, demo_db):
    _, result_rows, _ = rows(ask, "cpu_b8", "cpu_b8_remat")
    query = json.loads(
        call("query", "advice", "-p", "run", "cpu_b8", "--db", demo_db, "--format", "json")[1]
    )
    advised = {row["name"]: row for row in query if row["kind"] == "residual"}
    for row in result_rows:
        if row["kind"] == "residual":
            for name in ("low_saving_bytes", "saving_bytes", "sureness"):
                assert row[name] == advised[row["name"]][name]
        if row["promised_by"] == "what-if" and row["what"] == "source_line":
            words = ("what-if", "train_step", "--run", "cpu_b8", "--without", f"line:{row['name']}")
            alone = json.loads(call(*words, "--db", demo_db, "--format", "json")[1])[0]
            assert row["saving_bytes"] <= alone["saving_bytes"]


@pytest.mark.slow
def test_the_headline_says_whether_it_came(ask):
    code, out, _ = ask("cpu_b8", "cpu_b8_remat")
    assert code == 0
    assert out.splitlines()[0] == (
        "train_step (cpu_b8 → cpu_b8_remat, host): saved 2.40 MiB, as promised "
        "(2.21 MiB to 2.52 MiB)"
    )
    assert ask("cpu_b8", "cpu_b8_remat", "--format", "markdown")[1].count("| peak") == 1


@pytest.mark.slow
def test_a_larger_program_was_promised_nothing(ask):
    code, result_rows, _ = rows(ask, "cpu_b8", "cpu_b16")
    assert code == 0
    assert {row["what"] for row in result_rows} == {"peak", "need"}
    assert {row["saving_bytes"] for row in result_rows} == {None}
    assert "the arguments are larger, which is another program" in ask("cpu_b8", "cpu_b16")[1]


@pytest.mark.slow
def test_the_other_way_less_came(ask):
    """NEW has the promised buffers, but the peak grew, which no promise predicts."""
    code, result_rows, _ = rows(ask, "cpu_b8_remat", "cpu_b8")
    assert code == 1
    peak = next(row for row in result_rows if row["what"] == "peak")
    assert peak["got_bytes"] == -2514004
    assert peak["is_in_range"] is False
    instead = {row["name"]: row["new_bytes"] for row in result_rows if row["what"] == "instead"}
    assert instead["saved /home/user/model/train.py:65"] == 1804800


@pytest.mark.slow
def test_nothing_that_changed_is_a_note(ask):
    assert rows(ask, "cpu_b8", "cpu_b8")[:2] == (0, [])
    assert "no peak of a function" in ask("cpu_b8", "cpu_b8")[2]


@pytest.mark.slow
def test_a_function_that_is_not_there_is_named(ask):
    code, out, err = ask("cpu_b8", "cpu_b8_remat", "--function", "typo")
    assert (code, out) == (0, "")
    assert "no rows: neither side has function 'typo'; there is train_step, eval_step" in err


def test_a_run_that_is_not_there(ask):
    code, _, err = ask("cpu_b8", "cpu_b9")
    assert code == 2
    assert "no run 'cpu_b9'" in err


# -- which values are gone -------------------------------------------------------------------------


def changed(monkeypatch, base, new, peak=1000):
    """Return `_change` of buffers given as op, line, size, held, life, is_residual."""
    sides = [[_Buffer(number, *one) for number, one in enumerate(side)] for side in (base, new)]
    remaining = iter(sides)
    monkeypatch.setattr(verify, "_buffers", lambda chosen, held: next(remaining))

    class Chosen:
        peak_bytes = peak

    return _change(Chosen, None, Chosen, None)


STACK = ("saved exp", "a.py:3", 400, 400, 0.5, True)
LATE = ("dot_general", "a.py:4", 300, 300, 0.6, False)


def test_a_stack_whose_line_moved_stays(monkeypatch):
    moved = ("saved exp", "a.py:9", 400, 400, 0.4, True)
    change = changed(monkeypatch, [STACK], [moved])
    assert (change.gone, len(change.stays), change.appeared) == ([], 1, [])


def test_what_is_made_twice_and_lives_short_is_gone(monkeypatch):
    """jax.checkpoint makes the value in both passes, each for a moment."""
    short = ("dot_general", "a.py:4", 300, 300, 0.05, False)
    change = changed(monkeypatch, [STACK, LATE], [short, short])
    assert [one.op for one in change.gone] == ["dot_general", "saved exp"]
    assert change.keep == 0


def test_of_several_alike_as_many_are_gone_as_are_missing(monkeypatch):
    other = ("dot_general", "a.py:7", 300, 300, 0.6, False)
    change = changed(monkeypatch, [LATE, other], [other])
    assert [one.line for one in change.gone] == ["a.py:4"]


def test_what_is_there_for_a_moment_says_nothing(monkeypatch):
    moment = ("max", "a.py:5", 900, 900, 0.01, False)
    assert changed(monkeypatch, [moment], []).gone == []
    crumb = ("max", "a.py:5", 1, 1, 0.9, False)
    assert changed(monkeypatch, [crumb], [], peak=2000).gone == []


def test_a_stack_of_half_the_bytes_keeps_half(monkeypatch):
    half = ("saved exp", "a.py:3", 200, 200, 0.5, True)
    change = changed(monkeypatch, [STACK], [half])
    assert change.gone == []
    assert change.keep == verify.Fraction(1, 2)
    assert [one.op for one in change.away] == ["saved exp"]


def test_shares_that_differ_are_no_promise(monkeypatch):
    base = [STACK, LATE]
    new = [("saved exp", "a.py:3", 200, 200, 0.5, True), ("dot_general", "", 100, 100, 0.6, False)]
    change = changed(monkeypatch, base, new)
    assert (change.keep, change.away) == (0, [])


def test_what_grew_is_not_gone(monkeypatch):
    change = changed(monkeypatch, [STACK], [("saved exp", "a.py:3", 800, 800, 0.5, True)])
    assert (change.gone, change.narrowed, len(change.stays)) == ([], [], 1)


@pytest.mark.parametrize(
    ("new", "is_in_range"),
    [(700, True), (690, True), (600, True), (580, True), (579, False), (721, False)],
)
def test_a_range_has_two_percent_of_slack(new, is_in_range):
    row = Promise("peak", "all", 1000, new, 300, 400, "what-if", slack=20)
    assert row.is_in_range is is_in_range


# -- what-if --verify ------------------------------------------------------------------------------

DUMPING = """
import os, pathlib, shutil, sys
flags = os.environ["XLA_FLAGS"].split()
folder = [one.partition("=")[2] for one in flags if one.startswith("--xla_dump_to=")][-1]
shutil.copytree(sys.argv[1], folder, dirs_exist_ok=True)
"""


@pytest.fixture
def verified(call, demo_db, tmp_path):
    """what-if of the demo's lines, verified by a command that dumps what another run has."""
    database = shutil.copy(demo_db, tmp_path / "a.duckdb")
    script = tmp_path / "train.py"
    script.write_text(DUMPING)

    def run(*words, dumps="cpu_b8_remat", python=sys.executable):
        command_line = shlex.join([python, str(script), str(ROOT / "data" / "demo" / dumps)])
        verify = ("what-if", "train_step", "--run", "cpu_b8", "--db", str(database))
        return call(*verify, *words, "--verify", command_line), database

    return run


@pytest.mark.slow
def test_what_if_runs_the_changed_program_and_compares(verified, call):
    lines = ("--without", "line:saved *train.py:65", "--without", "line:saved *train.py:66")
    (code, out, _), database = verified(*lines, "--format", "json")
    result_rows = json.loads(out)
    peak = next(row for row in result_rows if row["what"] == "peak")
    plain = call("what-if", "train_step", "--run", "cpu_b8", *lines, "--db", str(database))[1]
    assert code == 0
    assert peak["new_run_name"] == "cpu_b8:verify"
    assert peak["got_bytes"] == 2514004
    assert "saves 2.09 MiB" in plain or peak["saving_bytes"] >= 2_000_000
    assert call("diff", "cpu_b8", "cpu_b8:verify", "--db", str(database))[0] == 0


@pytest.mark.slow
def test_less_than_was_promised_is_exit_1(verified):
    (code, out, _), _ = verified("--without", "line:saved *train.py:66", dumps="cpu_b8")
    assert code == 1
    assert "less than promised" in out


@pytest.mark.slow
def test_a_command_that_compiles_nothing_is_no_success(verified):
    (code, out, _), _ = verified("--until", "8MiB", python="false")
    assert code != 0
    assert out == ""
