"""Progress at a terminal: what it says, and that nothing else is in its way."""

import io
import os
import pty
import shutil
import subprocess
import sys
import termios
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DEMO

from bufdb import cli
from bufdb.commands import captured, common, progress, sweep
from bufdb.ingest.ingest import ingest
from bufdb.render.text import display_width

BUFDB = [sys.executable, "-m", "bufdb"]
ERASE = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_says_how_much_how_fast_and_how_long():
    assert progress.line(45_000_000, 100_000_000, 3.0, "MB", 72) == (
        " 45 %  █████████████▌                  45 of 100 MB  15 MB/s  0:04 left"
    )
    assert progress.line(3, 700, 2.0, "modules", 60) == (
        "  0 %             3 of 700 modules  1.5 modules/s  7:45 left"
    )
    assert progress.line(0, 700, 2.0, "modules", 40) == "  0 %                   0 of 700 modules"


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e6), st.integers(0, 200))
def test_a_line_fits_whatever_it_says(done, more, seconds, width):
    for unit in progress.UNITS:
        assert display_width(progress.line(done, done + more, seconds, unit, width)) <= width


def test_it_is_as_wide_as_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert progress.columns(io.StringIO()) == 40
    for text in ("", "wide"):
        monkeypatch.setenv("COLUMNS", text)
        assert progress.columns(io.StringIO()) == 80  # no terminal to ask
    near, far = pty.openpty()
    with os.fdopen(near, "rb"), os.fdopen(far, "w") as stream:
        termios.tcsetwinsize(far, (24, 61))
        assert progress.columns(stream) == 61
        termios.tcsetwinsize(far, (0, 0))
        assert progress.columns(stream) == 80


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (3.2, "0:04"), (60, "1:00"), (3599.5, "1:00:00")]
)
def test_a_time_to_come(seconds, text):
    assert progress.duration(seconds) == text


def test_it_is_drawn_now_and_then_and_gone_at_the_end():
    now, stream = [0.0], Terminal()
    shown = progress.Progress(stream, "modules", lambda: now[0])
    for done in range(1, 11):
        now[0] += 0.04
        shown(done, 10)
    text = stream.getvalue()
    assert text.count(" modules/s") == 3  # at 0.04, 0.16 and 0.28 s
    assert text.endswith(ERASE) and not shown.is_visible


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


def test_nobody_looks_at_a_pipe(monkeypatch):
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.progress("MB") as observer:
            assert observer is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress("MB", is_quiet=True) as observer:
        assert observer is None


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


def test_progress_without_a_terminal_is_a_few_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.waiting() as observer:
        for seconds in (1, 29, 30, 31, 59, 61, 5, 35):
            observer("compiling f", float(seconds))
    assert stream.getvalue().splitlines() == [
        f"bufdb: compiling f, {seconds} s" for seconds in (30, 61, 35)
    ]
    with progress.waiting(is_quiet=True) as observer:
        assert observer is None


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
    def in_rounds(*given, **options):
        return ingest(*given, **options, block_bytes=1000)

    monkeypatch.setattr(captured, "ingest", in_rounds)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    program = (
        "import os, re, shutil; "
        "folder = re.findall('--xla_dump_to=(\\\\S+)', os.environ['XLA_FLAGS'])[-1]; "
        f"shutil.copytree({str(DEMO / 'gpu_b8')!r}, folder, dirs_exist_ok=True)"
    )
    given = ["capture", "--run", "r", "--", sys.executable, "-c", program]
    assert cli.run(given) == 0
    lines, rest = drawn(stream.getvalue())
    assert any("% " in line and " MB" in line for line in lines)
    assert rest.startswith("bufdb: run r in bufdb.duckdb: ingested 2 modules")
    stream.truncate(stream.seek(0))
    assert cli.run([given[0], "-q", *given[1:]]) == 0
    assert stream.getvalue().splitlines()[-1] == "bufdb: replaced run r, which had 2 modules"


def test_a_sweep_says_how_long_the_rest_will_take(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert sweep._left(0, 6, 12.0) == ""
    assert sweep._left(2, 6, 12.0) == " (about 0:24 left)"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert sweep._left(2, 6, 12.0) == ""


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
