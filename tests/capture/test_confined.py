"""A process that the kernel lets write below one folder alone."""

import subprocess
import sys

import pytest

from bufdb.capture import confined

pytestmark = pytest.mark.skipif(
    confined.why_not() is not None, reason=f"cannot confine: {confined.why_not()}"
)
MOST = str(1 << 30)


def run(folder, code):
    command = [sys.executable, "-m", "bufdb.capture.confined", folder, MOST, sys.executable, "-c"]
    return subprocess.run([*command, code], capture_output=True, text=True)


@pytest.mark.parametrize(
    "code",
    [
        "open(outside + '/new', 'w')",
        "open(outside + '/old', 'a')",
        "os.truncate(outside + '/old', 0)",
        "os.remove(outside + '/old')",
        "os.mkdir(outside + '/folder')",
        "os.rename('in', outside + '/moved')",
        "os.link(outside + '/old', 'linked') or open('linked', 'w')",
        "os.symlink(outside + '/old', 'link') or open('link', 'w')",
        "subprocess.run(['touch', outside + '/new'], check=True)",
    ],
)
def test_nothing_is_written_outside(tmp_path, code):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    (outside / "old").write_text("kept")
    (inside / "in").touch()
    begin = f"import os, subprocess; os.chdir({str(inside)!r}); outside = {str(outside)!r}; "
    done = run(inside, begin + code)
    assert done.returncode == 1
    assert any(word in done.stderr for word in ("Permission denied", "CalledProcess", "Invalid cr"))
    assert [path.name for path in outside.iterdir()] == ["old"]
    assert (outside / "old").read_text() == "kept"


def test_inside_all_is_as_before(tmp_path):
    (tmp_path / "a").mkdir()
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); open('x', 'w').write('1'); "
        "os.rename('x', 'a/x'); print(open('a/x').read(), open(os.__file__).readline() != ''); "
        "open('/dev/null', 'w').write('1')"
    )
    done = run(tmp_path, code)
    assert (done.returncode, done.stdout) == (0, "1 True\n"), done.stderr


def test_memory_is_bounded(tmp_path):
    done = run(tmp_path, "bytearray(2 << 30)")
    assert done.returncode == 1 and "MemoryError" in done.stderr
