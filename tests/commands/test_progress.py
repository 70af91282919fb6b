"""Progress of whole commands at a terminal, and notes that have their own lines."""

import io
import os
import pty
import shutil
import subprocess
import sys
from contextlib import closing

import pytest
from places import DEMO

from bufdb import cli
from bufdb.commands import common
from bufdb.ingest.ingest import ingest
from bufdb.recording import command as recorded
from bufdb.render import progress
from bufdb.render.text import display_width

BUFDB = [sys.executable, "-m", "bufdb"]
ERASE = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_note_has_its_own_line(monkeypatch, capsys):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress("MB") as observer:
        observer(10**6, 10**7)
        common.note("what else there is")
        observer(2 * 10**6, 10**7)
    drawn = stream.getvalue().split(ERASE)
    assert [part[:5] for part in drawn] == ["", " 10 %", "bufdb", " 20 %", ""]
    assert drawn[2] == "bufdb: what else there is\n"
    common.note("after")
    assert stream.getvalue().endswith(f"{ERASE}bufdb: after\n")


def test_what_takes_long_is_drawn_with_its_seconds(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    with progress.waiting() as observer:
        observer("compiling f.py:step\x1b", 3.9)
        common.note("what else there is")
        observer("compiling " + "x" * 50, 64.0)
    _, first, note, last, _ = stream.getvalue().split(ERASE)
    assert first == "compiling f.py:step\\x1b  0:03"
    assert note == "bufdb: what else there is\n"
    assert last.endswith("xx  1:04") and len(last) < 40


# -- of whole commands -----------------------------------------------------------------------------


def at_terminal(*arguments):
    """Standard error of a command at a terminal of 70 columns."""
    near, far = pty.openpty()
    variables = {**os.environ, "NO_COLOR": "1", "COLUMNS": "70"}
    command = [*BUFDB, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=far, env=variables) as process:
        os.close(far)
        with closing(os.fdopen(near, "rb", buffering=0)) as stream:
            text = b""
            while part := read(stream):
                text += part
    assert process.returncode == 0
    return text.decode().replace("\r\n", "\n")


def read(stream):
    try:
        return stream.read(4096)
    except OSError:  # the other end is closed
        return b""


def drawn(text):
    """The drawings, and what stays."""
    *parts, rest = text.split(ERASE)
    return [part for part in parts if part], rest


@pytest.mark.slow
def test_ingest_and_check_draw_at_a_terminal(empty_folder):
    text = at_terminal("ingest", DEMO, "--run-from-dir")
    lines, rest = drawn(text)
    assert lines and all(" MB" in line and display_width(line) < 70 for line in lines)
    assert rest.startswith("bufdb: ingested 15 modules")
    lines, rest = drawn(at_terminal("check"))
    assert lines[0].lstrip().startswith("0 %") and all("of 15 modules" in line for line in lines)
    assert rest.endswith(" invariants hold for 15 modules\n")


@pytest.mark.slow
def test_what_has_not_changed_is_done_too(empty_folder):
    at_terminal("ingest", DEMO, "--run-from-dir", "-q")
    lines, rest = drawn(at_terminal("ingest", DEMO, "--run-from-dir"))
    assert all(" MB" in line for line in lines)
    assert rest.startswith("bufdb: ingested 0 modules") and rest.count("\n") == 1


@pytest.mark.slow
def test_capture_draws_while_it_stores(empty_folder, monkeypatch):
    def in_rounds(*arguments, **options):
        return ingest(*arguments, **options, block_bytes=1000)

    monkeypatch.setattr(recorded, "ingest", in_rounds)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    program = (
        "import os, re, shutil; "
        "folder = re.findall('--xla_dump_to=(\\\\S+)', os.environ['XLA_FLAGS'])[-1]; "
        f"shutil.copytree({str(DEMO / 'gpu_b8')!r}, folder, dirs_exist_ok=True)"
    )
    words = ["capture", "--run", "r", "--", sys.executable, "-c", program]
    assert cli.run(words) == 0
    lines, rest = drawn(stream.getvalue())
    assert any("% " in line and " MB" in line for line in lines)
    assert rest.startswith("bufdb: run r in bufdb.duckdb: ingested 2 modules")
    stream.truncate(stream.seek(0))
    assert cli.run([words[0], "-q", *words[1:]]) == 0
    assert stream.getvalue().splitlines()[-1] == "bufdb: replaced run r, which had 2 modules"


@pytest.mark.slow
def test_quiet_says_nothing_where_all_is_well(call, empty_folder):
    assert call("ingest", DEMO / "gpu_b8", "--quiet") == (0, "", "")
    assert call("check", "-q") == (0, "", "")
    assert at_terminal("ingest", DEMO / "cpu_b8", "-q") == ""
    assert at_terminal("check", "-q") == ""


@pytest.mark.slow
def test_quiet_hides_no_fault(call, empty_folder, tmp_path):
    folder = tmp_path / "dumps"
    shutil.copytree(DEMO / "gpu_b8", folder)
    odd = folder / "module_0001.x-buffer-assignment.txt"
    odd.write_text("BufferAssignment:\nnonsense\n")
    code, _, err = call("ingest", folder, "-q")
    assert code == 4 and "ingested" in err
    odd.unlink()
    (folder / "module_0002.jit_c.after_optimizations.txt").write_text("HloModule jit_c\n")
    code, _, err = call("ingest", folder, "-q")
    assert (code, err.count("\n")) == (0, 1)
    assert (
        err.startswith("bufdb: run dumps: modules that have")
        and "1 from a compilation cache" in err
    )
