"""A run that is not there is one error in every command, in Python and for assistants."""

import shutil

import pytest
from places import ROOT

import bufdb
from bufdb.api import assistant
from bufdb.errors import UsageError

BUDGET = """
[[budget]]
function = "*"
metric = "peak"
limit = "1 GiB"
"""
COMMANDS = [
    ("summary", "--run", "{}"),
    ("advice", "--run", "{}"),
    ("show", "--run", "{}"),
    ("report", "--run", "{}"),
    ("report", "--diff", "{}"),
    ("report", "--run", "cpu_b8", "--diff", "{}"),
    ("report", "--run", "{}", "--diff", "cpu_b8"),
    ("query", "peak", "--run", "{}"),
    ("query", "runs", "--run", "{}", "--format", "json"),
    ("query", "diff-modules", "-p", "base", "{}", "-p", "new", "cpu_b8"),
    ("query", "peak-by", "--run", "{}", "--format", "parquet", "-o", "out"),
    ("diff", "{}", "cpu_b8"),
    ("diff", "cpu_b8", "{}"),
    ("blame", "cpu_b8", "{}"),
    ("verify", "cpu_b8", "{}"),
    ("what-if", "step", "--without", "dtype:f32", "--run", "{}"),
    ("budget", "budget.toml", "--run", "{}"),
    ("budget", "budget.toml", "--run", "cpu_b8", "--base", "{}"),
    ("export", "--format", "collapsed", "--run", "{}", "-o", "out"),
    ("export", "--format", "parquet", "--run", "{}", "-o", "out"),
]
WRITING = [
    ("profile", str(ROOT / "data" / "profiles"), "--run", "{}"),
    ("runs", "label", "{}", "a=1"),
]


WRONG = "bufdb: error: no run 'gpu_b9'; did you mean 'gpu_b8'? 'bufdb runs' lists them\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_run_that_is_not_there_is_wrong_usage(call, demo_db, empty_folder, command):
    (empty_folder / "budget.toml").write_text(BUDGET, encoding="utf-8")
    words = [word.format("gpu_b9") for word in command]
    assert call(*words, "--db", demo_db) == (2, "", WRONG)
    assert [path.name for path in empty_folder.iterdir()] == ["budget.toml"]


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_nothing_is_written_for_a_run_that_is_not_there(call, demo_db, empty_folder, command):
    """In a copy: a writer waits for the tests of other processes, and readers for the writer."""
    words = [word.format("gpu_b9") for word in command]
    copy = shutil.copy(demo_db, empty_folder)
    assert call(*words, "--db", copy) == (2, "", WRONG)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("nothing_like_it", "; there is cpu_b16, cpu_b8, cpu_b8_old, cpu_b8_remat, gpu_b8, tpu_b8"),
        ("gpu_x*", "; did you mean 'gpu_b8'?"),
        ("batch=99", "; did you mean 'batch="),
    ],
)
def test_the_nearest_names_are_listed(call, demo_db, run, message):
    code, _, err = call("query", "peak", "--run", run, "--db", demo_db)
    assert code == 2
    assert f"no run {run!r}{message}" in err


def test_an_empty_database_says_so(call, empty_db):
    code, _, err = call("summary", "--run", "base", "--db", empty_db)
    assert (code, err) == (2, "bufdb: error: no run 'base': no run is stored\n")


@pytest.mark.slow
def test_python_and_assistants_raise_the_same(demo_db):
    asks = [
        lambda db: db.summary(run="gpu_b9"),
        lambda db: db.query("peak", run="gpu_b9"),
        lambda db: db.diff("gpu_b9", "cpu_b8"),
        lambda db: assistant.Tools(db).summary(run="gpu_b9"),
        lambda db: assistant.Tools(db).advice(run="gpu_b9"),
    ]
    with bufdb.connect(demo_db) as db:
        for ask in asks:
            with pytest.raises(UsageError, match="no run 'gpu_b9'; did you mean 'gpu_b8'"):
                ask(db)
