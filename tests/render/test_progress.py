"""The line of progress on a terminal: its text, its width and when it is drawn."""

import io
import os
import pty
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.render import progress
from bufdb.render.text import display_width

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


def test_nobody_looks_at_a_pipe(monkeypatch):
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.progress("MB") as observer:
            assert observer is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress("MB", is_quiet=True) as observer:
        assert observer is None


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
