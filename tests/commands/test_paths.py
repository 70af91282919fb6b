"""Commands that are asked about dumps by their paths, without a database."""

import shutil

import pytest
from places import DEMO, ROOT

from bufdb import cli, user_cache

GPU = DEMO / "gpu_b8"


@pytest.fixture
def place(empty_folder, monkeypatch):
    """An empty working directory, next to a cache."""
    monkeypatch.setenv(user_cache.VARIABLE, str(empty_folder / "cache"))
    folder = empty_folder / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


COMMANDS = {
    "summary": ("summary",),
    "advice": ("advice", "train_step"),
    "show": ("show", "train_step"),
    "query": ("query", "top-temps", "--format", "csv"),
    "sql": ("sql", "SELECT count(*) FROM values"),
    "what-if": ("what-if", "train_step", "--until", "8MiB"),
    "check": ("check",),
}


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "stored.duckdb"
    assert cli.run(["ingest", str(GPU), "--db", str(path), "-q"]) == 0
    return path


@pytest.fixture
def stored(place, stored_once):
    return shutil.copy(stored_once, place / "stored.duckdb")


@pytest.mark.parametrize(
    "name",
    [name if name == "query" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS],
)
def test_a_path_answers_as_a_database_of_it(place, stored, call, name):
    command = COMMANDS[name]
    answer = call(*command, GPU)
    assert answer[:2] == call(*command, "--db", stored)[:2]
    assert answer[1] and answer[2].endswith(f"bufdb: to keep what was read: bufdb ingest {GPU}\n")
    assert not (place / "bufdb.duckdb").exists()


@pytest.mark.slow
def test_a_path_in_place_of_a_name_is_about_the_largest(place, call):
    for command in (("show",), ("advice",), ("what-if", "--until", "8MiB")):
        assert "train_step" in call(*command, GPU)[1]


@pytest.mark.slow
def test_two_folders_of_one_name_are_compared(place, call):
    for name in ("cpu_b8_remat", "cpu_b8"):
        shutil.copytree(DEMO / name, place / name / "dumps")
    code, out, err = call("diff", "cpu_b8_remat/dumps", "cpu_b8/dumps", "--function", "train_step")
    assert code == 0 and "train_step: peak 6.10 MiB → 8.49 MiB (+39.3%)" in out, err
    code, out, err = call("report", "cpu_b8/dumps", "--diff", "cpu_b8_remat/dumps", "-o", "a.html")
    assert code == 0 and "cpu_b8_remat/dumps" in (place / "a.html").read_text(), err


@pytest.mark.slow
def test_a_log_on_standard_input_is_that_of_its_file(place, call, monkeypatch):
    log = ROOT / "data" / "oom" / "tpu.log"
    code, of_file, _ = call("summary", log)
    assert code == 0 and "1 module" in of_file
    with log.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, err = call("summary", "-")
    assert (code, err) == (0, "")
    assert out.replace("stdin", "oom") == of_file


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("summary", "nowhere"), "no file or directory 'nowhere'"),
        (("summary", "."), "no buffer assignment in ."),
        (("summary", GPU, "--db", "a.duckdb"), "give one of them"),
        (("diff", GPU, "cpu_b8"), "'cpu_b8' is no path of dumps"),
        (("what-if", "f", GPU, "--until", "1MiB", "--verify", "python a.py"), "--db"),
    ],
)
def test_what_cannot_be_asked_of_paths(place, call, words, message):
    code, out, err = call(*words)
    assert (code, out) == (2, "") and message in err


@pytest.mark.slow
def test_a_word_is_a_name_where_there_is_a_database(place, call):
    (place / "train_step").mkdir()
    assert call("ingest", GPU, "-q")[0] == 0
    assert "train_step" in call("advice", "train_step")[1]
    assert call("advice", "./train_step")[0] == 2


def test_without_a_cache_nothing_is_left(place, call, monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv(user_cache.VARIABLE, user_cache.OFF)
    assert call("sql", "SELECT 1", GPU)[0] == 0
    assert [*folder.glob("bufdb-*")] == []
