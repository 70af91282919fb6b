"""Files that a user names for an answer: whole, or as they were."""

import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest

from bufdb.errors import UsageError
from bufdb.render.output import write_file

LIMIT = 4096
"""Largest file that a process may write [bytes], to simulate a full disk."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "before"),
    [
        ("query top-values --top 1000 --full", None),
        ("query top-values --top 1000 --format arrow", "before"),
        ("report", "before"),
        ("export --format perfetto", "before"),
        ("what-if train_step --run gpu_b8 --until 1KiB --by value", "before"),
    ],
)
def test_a_disk_that_is_full_leaves_what_was_there(demo_db, tmp_path, command, before):
    path = tmp_path / "answer"
    if before is not None:
        path.write_text(before)
    arguments = [*command.split(), "--db", str(demo_db), "-o", str(path)]
    # In the child itself: JAX, which another test may have imported here, warns of a fork.
    limited = (
        f"import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT})); "
        "runpy.run_module('bufdb', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # Python would keep what is cut off
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"bufdb: error: cannot write {path}: File too large\n"
    assert (path.read_text() if path.exists() else None) == before
    assert [each.name for each in tmp_path.iterdir()] == ["answer"] * (before is not None)


def test_a_new_file_has_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "new", b"1")
    finally:
        os.umask(before)
    (tmp_path / "mine").touch(0o600)
    write_file(tmp_path / "mine", b"2")
    files = {
        path.name: (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in tmp_path.iterdir()
    }
    assert files == {"new": (0o640, b"1"), "mine": (0o600, b"2")}


@pytest.mark.parametrize("target", ["there", "not there yet"])
def test_what_a_link_points_to_is_written(tmp_path, target):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "there").touch()
    link = tmp_path / "link"
    link.symlink_to(f"folder/{target}")
    write_file(link, b"1")
    assert link.is_symlink()
    assert (tmp_path / "folder" / target).read_bytes() == b"1"


def test_a_pipe_is_written_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    contents = []
    reader = threading.Thread(target=lambda: contents.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"1")
    reader.join()
    assert contents == [b"1"]
    assert pipe.is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("sql SELECT\t1", "-"),
        ("report", "/dev/stdout"),
        ("export --format collapsed", "/dev/fd/1"),
    ],
)
def test_standard_output_by_its_names(demo_db, tmp_path, command, output):
    """Also where it is a file, to which others write too."""
    path = tmp_path / "all"
    words = [word.replace("\t", " ") for word in command.split(" ")]
    with path.open("ab") as stream:
        subprocess.run(
            [sys.executable, "-m", "bufdb", *words, "--db", str(demo_db), "-o", output],
            stdout=stream,
            check=True,
            cwd=tmp_path,
        )
        assert path.stat().st_size > 3
        stream.write(b"after")
    assert path.read_bytes().endswith(b"after")
    assert [each.name for each in tmp_path.iterdir()] == ["all"]


def test_a_file_that_cannot_be_replaced_is_written(tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "mounted"
    path.write_text("before")
    monkeypatch.setattr("pathlib.Path.replace", refuse)
    write_file(path, b"1")
    assert path.read_bytes() == b"1"
    assert [each.name for each in tmp_path.iterdir()] == ["mounted"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", ["sql SELECT\t1", "report", "export --format collapsed"])
def test_a_database_is_not_replaced(demo_db, tmp_path, call, command):
    db = tmp_path / "a.duckdb"
    shutil.copy(demo_db, db)
    words = [word.replace("\t", " ") for word in command.split(" ")]
    code, out, err = call(*words, "--db", db, "-o", db)
    assert (code, out, err.splitlines()[-1]) == (
        2,
        "",
        f"bufdb: error: {db} is a database; -o wants another file",
    )
    assert db.read_bytes() == demo_db.read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_what_may_not_be_written_stays(tmp_path):
    path = tmp_path / "fixed"
    path.touch(0o400)
    with pytest.raises(UsageError, match="Permission denied"):
        write_file(path, b"1")
    assert path.read_bytes() == b""
