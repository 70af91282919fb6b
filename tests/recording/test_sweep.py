"""Combinations of values: the commands that are run, and what comes of each run."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DEMO

from bufdb.errors import UsageError
from bufdb.recording import sweep

TRAIN = f"""
import os, re, shutil, sys
folder = re.findall("--xla_dump_to=(\\\\S+)", os.environ["XLA_FLAGS"])[-1]
if sys.argv[1] != "7":
    shutil.copytree({str(DEMO.parent)!r} + "/lengths/length_" + sys.argv[1], folder)
sys.exit(3 * (sys.argv[1] == "7"))
"""


def commands(texts, *words):
    return [one.command for one in sweep.combinations(words, sweep.parse(texts))]


def test_each_combination_has_its_command():
    combinations = sweep.combinations(
        ["t", "--b={b}", "{r}"], sweep.parse(["b=8,16", "r=none, full"])
    )
    assert [one.command for one in combinations] == [
        ("t", "--b=8", "none"),
        ("t", "--b=8", "full"),
        ("t", "--b=16", "none"),
        ("t", "--b=16", "full"),
    ]
    assert [one.suffix for one in combinations] == ["8-none", "8-full", "16-none", "16-full"]
    assert combinations[1].values == {"b": "8", "r": "full"}


def test_a_value_makes_no_path():
    (one,) = sweep.combinations(["{n}"], sweep.parse(["n=../x y"]))
    assert sweep._folder_name(2, one) == "2-.._x_y"


def test_braces_written_twice_are_literal():
    assert commands(["b=8"], '{{"batch": {b}}}', "{b}{b}", "}}{{") == [('{"batch": 8}', "88", "}{")]
    # A value is no template.
    assert commands(["b={b}"], "{b}") == [("{b}",)]


@pytest.mark.slow
@given(st.text())
def test_any_word_with_its_braces_doubled_is_itself(word):
    escaped = word.replace("{", "{{").replace("}", "}}")
    assert commands(["b=1"], escaped, "{b}") == [(word, "1")]


@pytest.mark.parametrize(
    ("texts", "words", "message"),
    [
        (["b"], "{b}", "--sweep wants K=V1,V2,…, got 'b'"),
        (["b="], "{b}", "--sweep wants K=V1,V2,…, got 'b='"),
        (["b=1,,2"], "{b}", "--sweep wants K=V1,V2,…, got 'b=1,,2'"),
        (["=1"], "{b}", "--sweep wants K=V1,V2,…, got '=1'"),
        (["b=1", "b=2"], "{b}", "--sweep b is repeated; list all its values in one"),
        (["b=1,2,1"], "{b}", "--sweep b has '1' twice"),
        (["batch=1"], "{btch}", "no --sweep for {btch} in '{btch}'; did you mean 'batch'?"),
        (["b=1"], "{b} {}", "no --sweep for {} in '{}'; write a literal brace twice"),
        (["b=1"], "{b} {x", "a single brace in '{x'; write a literal brace twice"),
        (["b=1"], "{b} x}", "a single brace in 'x}'; write a literal brace twice"),
        (["b=1", "c=1"], "{b}", "--sweep c: the command has no {c}, so its runs would not differ"),
        (["b=1-2,1", "c=3,2-3"], "{b}{c}", "--sweep: two runs would be named '1-2-3'"),
    ],
)
def test_a_sweep_that_is_none(texts, words, message):
    with pytest.raises(UsageError) as error:
        commands(texts, *words.split())
    assert str(error.value).startswith(message)


def test_labels_that_a_curve_can_go_over():
    labels = sweep.parse(["b=8,1e3", "one=4", "remat=none,2", "x=-1,.5", "y=nan,1"])
    assert sweep.numeric_labels(labels) == ["b", "x"]


def test_the_time_that_is_left():
    assert sweep.time_left(0, 6, 12.0) == ""
    assert sweep.time_left(2, 6, 12.0) == " (about 0:24 left)"


@pytest.mark.slow
def test_runs_are_compared_without_a_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    notes = []
    command = [sys.executable, "train.py", "{length}"]
    fields = {"db": "t.duckdb", "limits": (16 << 30, None), "note": notes.append}
    planned = sweep.plan(command, ["length=512,7,1024,1536,2048"], {}, "s", **fields)
    done, code = sweep.run(planned, Path("kept"))
    assert code == 3
    assert [one.outcome for one in done] == ["stored", "nothing dumped", *["stored"] * 3]
    assert sorted(path.name for path in Path("kept").iterdir()) == [
        "1-512", "2-7", "3-1024", "4-1536", "5-2048"
    ]  # fmt: skip
    assert notes[0] == "run 1 of 5: length=512"
    assert any(note.startswith("nothing was dumped") for note in notes)
    table, lines = sweep.compared(planned, done)
    assert [name for name, _ in table.columns][:4] == ["run_name", "length", "exit_code", "outcome"]
    assert [row[:4] for row in table.rows][1] == ("s-7", "7", 3, "nothing dumped")
    assert lines[-1] == (
        "bufdb query scaling --db t.duckdb --run sweep=s -p label length has the figures"
    )
