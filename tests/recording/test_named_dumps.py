"""Databases of dumps in the user's cache: what is read again, and how much is kept."""

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from places import DEMO

from bufdb import user_cache
from bufdb.dumps.place import Bytes
from bufdb.recording import named_dumps


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "cache"))
    return Path(shutil.copytree(DEMO / "gpu_b8", tmp_path / "dumps"))


def read(*paths):
    """Return the file, and how many modules were read, left as they were, and removed."""
    with named_dumps.database_of(paths, nullcontext) as named:
        (summary,) = named.summaries
        counts = summary.module_count, summary.unchanged_count, summary.pruned_count
        return Path(named.db), counts


def test_only_what_has_changed_is_read_again(dumps):
    first, counts = read(dumps)
    assert counts == (2, 0, 0)
    assert read(dumps) == (first, (0, 2, 0))
    files = sorted(dumps.iterdir())
    stem = files[0].name.split(".")[0]
    with files[0].open("a") as file:
        file.write("\n")
    assert read(dumps) == (first, (1, 1, 0))
    for file in files:
        if file.name.startswith(stem):
            file.unlink()
    assert read(dumps) == (first, (0, 1, 1))


def test_own_code_makes_another_database(dumps):
    with named_dumps.database_of([dumps], nullcontext, ["flax"]) as named:
        assert Path(named.db) != read(dumps)[0]


def test_other_tables_make_another_database(dumps, monkeypatch):
    before = named_dumps._key([dumps], None)
    monkeypatch.setattr(named_dumps.resources, "schema_files", lambda _: [])
    assert named_dumps._key([dumps], None) != before


def test_the_database_asked_longest_ago_makes_room(dumps, monkeypatch, tmp_path):
    first, _ = read(dumps)
    monkeypatch.setattr(named_dumps, "MOST_BYTES", first.stat().st_size * 3 // 2)
    os.utime(first, (1, 1))
    other = Path(shutil.copytree(dumps, tmp_path / "other"))
    second, _ = read(other)
    assert [*first.parent.iterdir()] == [second]
    assert first.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/a/dumps"], ["dumps"]),
        (["/a/dumps", "/b/dumps"], ["a/dumps", "b/dumps"]),
        (["/a/x/dumps", "/b/x/dumps", "/c"], ["a/x/dumps", "b/x/dumps", "c"]),
        (["/base.tar.gz", "/new.zip"], ["base", "new"]),
        (["/", "/a"], ["dumps", "a"]),
    ],
)
def test_runs_have_the_shortest_names_that_differ(monkeypatch, paths, names):
    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    assert named_dumps.run_names([Path(path) for path in paths]) == names


def test_a_run_of_bytes_has_their_name():
    assert named_dumps.run_names([Bytes("stdin", b"")]) == ["stdin"]


def test_two_files_of_one_folder_are_two_runs(tmp_path):
    files = [tmp_path / "a" / name for name in ("first.prof", "last.prof")]
    files[0].parent.mkdir()
    for file in files:
        file.touch()
    assert named_dumps.run_names(files) == ["first.prof", "last.prof"]
    assert named_dumps.run_names([files[0], files[0]]) == ["a", "a"]
