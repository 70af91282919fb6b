"""What a question spills is gone when its process is, however that ended."""

import os
import subprocess
import sys
from pathlib import Path

from bufdb.database import spill


def left_by(folder, code):
    """Run code after which a spill folder is there; return the process's end and the folder."""
    text = (
        "import os, sys; from bufdb.database import spill; name = spill.spill_folder(); "
        f"os.mkdir(name); print(name, flush=True); {code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, Path(done.stdout.strip())


def test_a_process_that_ends_at_once_leaves_nothing(tmp_path):
    code, name = left_by(tmp_path, "spill.remove_spilled(); os._exit(3)")
    assert code == 3 and name.parent == tmp_path and not name.exists()


def test_what_a_killed_process_left_is_removed(tmp_path, monkeypatch):
    code, name = left_by(tmp_path, "os.kill(os.getpid(), 9)")
    assert code == -9 and name.is_dir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own_folder, (prefix, _, number) = Path(spill.spill_folder()), name.name.rpartition("-")
    own_folder.mkdir()
    other = tmp_path / "bufdb-00000000-1-aa"
    other.mkdir()
    link = tmp_path / f"{prefix}-link"
    link.symlink_to(other)
    assert not name.exists()
    spill.spill_folder()
    assert own_folder.is_dir() and other.is_dir() and link.is_symlink() and number


def test_a_copy_of_a_process_removes_nothing(tmp_path):
    text = (
        "import os; from bufdb.database import spill; folder = spill.make_folder(); pid = os.fork()"
        "\nif not pid: spill.remove_folder(folder); spill.remove_spilled(); os._exit(0)"
        "\nos.waitpid(pid, 0); assert folder.is_dir(); spill.remove_folder(folder)"
        "\nassert not folder.exists()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", text], env=environment, check=True)
