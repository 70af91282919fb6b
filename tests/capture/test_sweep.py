"""bufdb capture --sweep: what stops its runs, and what the end says."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pytest
from places import DEMO

from bufdb import cli

WAIT_SECONDS = 60
TRAIN = f"""
import os, re, shutil, sys, time

def dump(run):
    folder = re.findall("--xla_dump_to=(\\\\S+)", os.environ["XLA_FLAGS"])[-1]
    shutil.copytree({str(DEMO.parent)!r} + "/" + run, folder, dirs_exist_ok=True)
"""
LENGTHS = "dump('lengths/length_' + sys.argv[1])"


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path, empty_folder):
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def run(capfd, empty_db, tmp_path):
    """Run a sweep into an empty database; return exit code, standard error and rows."""
    shutil.copy(empty_db, "bufdb.duckdb")

    def swept(*arguments, body, words=(), leaves=()):
        Path("train.py").write_text(TRAIN + body)
        options = ["capture", "--run", "s", "-o", "t.json", "--format", "json", *arguments]
        code = cli.run([*options, "--", sys.executable, "train.py", *words])
        assert [path.name for path in (tmp_path / "tmp").iterdir()] == list(leaves)
        return code, capfd.readouterr().err, json.loads(Path("t.json").read_text())

    return swept


def rows(sql):
    with duckdb.connect("bufdb.duckdb", read_only=True) as con:
        return con.execute(sql).fetchall()


@pytest.mark.slow
def test_runs_are_labelled_and_the_end_says_what_fits(run):
    sweep = ("--sweep", "length=512,1024,1536,2048", "--label", "model=a", "--limit", "16GiB")
    code, err, table = run(*sweep, body=LENGTHS, words=["{length}"])
    assert code == 0
    assert [row["run_name"] for row in table] == ["s-512", "s-1024", "s-1536", "s-2048"]
    assert {(row["exit_code"], row["outcome"], row["function_name"]) for row in table} == {
        (0, "stored", "attention_step")
    }
    peaks = rows("SELECT run_name, peak_bytes FROM memory_figures ORDER BY peak_bytes")
    assert [(row["run_name"], row["peak_bytes"]) for row in table] == peaks
    assert [row["limit_ratio"] for row in table] == [peak / 2**34 for _, peak in peaks]
    assert (
        rows("SELECT label_value FROM run_labels WHERE label = 'sweep' AND is_metadata")
        == [("s",)] * 4
    )
    assert rows(
        "SELECT label, label_value FROM run_labels WHERE NOT is_metadata AND run_name = 's-512'"
        " ORDER BY ALL"
    ) == [("length", "512"), ("model", "a")]
    lines = err.splitlines()
    assert lines[0] == "bufdb: run 1 of 4: length=512"
    assert sum("compilation cache is off" in line for line in lines) == 1
    assert lines[-4].startswith("bufdb: need of attention_step (model=a): ")
    assert lines[-4].endswith(" * length^2, within 0.1%, from 4 sizes, 512 to 2048")
    # As README has it of the query.
    assert lines[-3] == (
        "bufdb: largest length that fits 16.0 GiB: 12890 to 15872 (model=a), by attention_step; "
        "2048 is sure: it was compiled; beyond 4096 it is a guess"
    )
    proof = "bufdb capture --db bufdb.duckdb --run s --sweep length=12890 --label model=a -- "
    assert lines[-2].startswith(f"bufdb: to verify: {proof}")
    assert lines[-2].endswith(" train.py '{length}'")
    again = "bufdb query scaling --db bufdb.duckdb --run sweep=s -p label length"
    assert lines[-1] == f"bufdb: {again} has the figures"
    assert cli.run(again.split()[1:]) == 0


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(run):
    body = """
what = sys.argv[1]
if what != "early": dump("demo/cpu_b8")
if what == "memory": os.kill(os.getpid(), 9)
sys.exit(3 if what == "early" else 0)
"""
    sweep = ("--sweep", "what=memory,early,good")
    code, err, table = run(*sweep, body=body, words=["{what}"])
    assert code == 128 + 9
    assert [(row["exit_code"], row["outcome"], row["peak_bytes"]) for row in table] == [
        (137, "stored", 8905504),
        (3, "nothing dumped", None),
        (0, "stored", 8905504),
    ]
    assert list(table[0])[:2] == ["run_name", "what"] and "limit_ratio" not in table[0]
    assert "no curve" not in err  # over words
    assert rows("SELECT run_name FROM runs ORDER BY 1") == [("s-good",), ("s-memory",)]


@pytest.mark.slow
def test_a_command_that_cannot_be_started_stops_no_other(capfd, empty_db):
    shutil.copy(empty_db, "bufdb.duckdb")
    words = ["capture", "--sweep", "program=./none,true", "-o", "t.csv", "--format", "csv"]
    assert cli.run([*words, "--run", "s", "--", "{program}"]) == 127
    assert Path("t.csv").read_text().splitlines()[1:] == [
        "s-./none,./none,127,not started,,,",
        "s-true,true,0,nothing dumped,,,",
    ]
    capfd.readouterr()
    words = ["capture", "-q", "--sweep", "program=./none", "-o", "no/t.csv", "--format", "csv"]
    assert cli.run([*words, "--run", "s", "--", "{program}"]) == 127
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "bufdb: error: no command ./none",
        "bufdb: error: cannot write no/t.csv: No such file or directory",
    ]


@pytest.mark.slow
def test_dumps_are_kept_apart(run):
    code, _, _ = run(
        "--sweep", "n=512,../x", "--keep-dumps", "d", body="dump('lengths/length_512')",
        words=["{n}"],
    )  # fmt: skip
    assert code == 0
    assert sorted(path.name for path in Path("d").iterdir()) == ["1-512", "2-.._x"]
    assert all(len(list(path.iterdir())) == 5 for path in Path("d").iterdir())


@pytest.mark.parametrize(
    ("arguments", "word", "message"),
    [
        (["--sweep", "b=1", "--label", "b=2"], "{b}", "label b is set by both --label and --sweep"),
        (
            ["--sweep", "b=1", "--label", "sweep=2"],
            "{b}",
            "--label sweep: it holds the name of the",
        ),
        (["--sweep", "outcome=1"], "{outcome}", "--sweep outcome: the name is reserved; use"),
        (["--sweep", "b=1", "--limit", "much"], "{b}", "--limit wants a size such as 16GiB or a"),
        (["--sweep", "b=1"], "{c}", "no --sweep for {c} in '{c}'"),
        (["--limit", "1GiB", "-o", "t"], "b", "--limit is for the summary or a --sweep; the tab"),
    ],
)
def test_wrong_usage_is_found_before_anything_is_run(capfd, arguments, word, message):
    assert cli.run(["capture", *arguments, "--", "touch", "was-run", word]) == 2
    assert capfd.readouterr().err.startswith(f"bufdb: error: {message}")
    assert not Path("was-run").exists()


def test_without_a_sweep_braces_are_the_commands_own(capfd):
    cli.run(["capture", "--", "touch", "{b}"])
    assert Path("{b}").exists()


@pytest.mark.slow
def test_a_signal_stops_the_sweep_and_what_is_stored_stays(empty_db):
    shutil.copy(empty_db, "bufdb.duckdb")
    # The program ends well on it, as one does that saves its state first.
    Path("train.py").write_text(
        TRAIN + "import signal\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(0))\n"
        "dump('lengths/length_512')\nprint('ready', flush=True)\n"
        "for _ in range(600 * (sys.argv[1] == '2')): time.sleep(0.1)\n"
    )
    script = "from bufdb.cli import main; main()"
    words = ["capture", "--sweep", "n=1,2,3", "--run", "s", "--", sys.executable, "train.py", "{n}"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    assert "bufdb: stopped after 2 of 3 runs" in err
    lines = [" ".join(line.split()) for line in err.splitlines()]
    assert any(line.startswith("s-2 2 0 stored attention_step ") for line in lines)
    assert "s-3 3 - not run - -" in lines
    assert rows("SELECT run_name FROM runs ORDER BY 1") == [("s-1",), ("s-2",)]
