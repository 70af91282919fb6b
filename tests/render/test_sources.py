"""Which files are sources of a program, which no answer replaces."""

import os

import pytest

from bufdb.errors import UsageError
from bufdb.render.sources import spare


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A program of two files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    for name in ("train.py", "inner/model.py"):
        (tmp_path / name).touch()
    return tmp_path


def test_files_that_are_no_source_are_replaced(sources):
    (sources / "old.patch").write_text("old")
    os.link(sources / "old.patch", sources / "other.patch")
    for name in ("old.patch", "other.patch", "new.patch", "new.py", "/dev/stdout"):
        spare("-o", sources / name, ["train.py:step"])
    spare("-o", None, ["train.py:step"])


def test_a_link_is_refused_of_the_program_alone(sources, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "own.py").write_text("")
    os.link(other / "own.py", sources / "out.txt")
    spare("-o", sources / "out.txt", ["train.py:step"])
    with pytest.raises(UsageError, match="is Python source"):
        spare("-o", sources / "out.txt", ["python", str(other / "own.py")])
