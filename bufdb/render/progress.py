"""Progress on a terminal: one line on standard error, redrawn in place and erased at the end.

Neither click's progress bar, which has no rate, nor rich, whose import alone costs 40 ms of CPU.
Invariant: nothing is drawn unless on a terminal, and a note never appears within the line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bufdb.errors import one_line
from bufdb.render.table import bar

INTERVAL_S = 0.1
"""Minimum time between two drawings."""
UNITS = {"MB": 1e6, "modules": 1.0}
"""Counted units per displayed unit."""
_ERASE = "\r\x1b[K"
_DEFAULT_COLUMNS = 80
PLAIN_INTERVAL_S = 30.0
"""Time between two lines of a long step, where lines cannot be redrawn."""
_Shown = TypeVar("_Shown", bound="Line")
_shown: list[Line] = []
"""The line on the terminal, if any."""

Observer = Callable[[int, int], None]
"""Receives the amount done, and the total."""


class Line:
    """A line on a terminal that can be erased."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.drawn = float("-inf")
        self.is_visible = False

    def draw(self, text: str) -> None:
        """Draw the line in place of the previous text."""
        self._write(f"{_ERASE}{text}")
        self.is_visible = True

    def hide(self) -> None:
        """Erase the line until it is drawn again."""
        if self.is_visible:
            self._write(_ERASE)
            self.is_visible = False
            self.drawn = float("-inf")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.stream.write(text)
            self.stream.flush()


class Progress(Line):
    """A line with progress, rate and remaining time."""

    def __init__(self, stream: Any, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self.unit, self.clock = unit, clock
        self.began = clock()

    def __call__(self, done: int, total: int) -> None:
        """Draw, unless drawn a moment ago; erase the line when everything is done."""
        now = self.clock()
        if done >= total:
            self.hide()
        elif now - self.drawn >= INTERVAL_S:
            self.drawn = now
            self.draw(line(done, total, now - self.began, self.unit, columns(self.stream) - 1))


class Waiting(Line):
    """A line with the current step and its duration, for steps of unknown length.

    Where it cannot be redrawn, it is written every 30 seconds, for steps that take minutes.
    """

    def __init__(self, stream: Any, *, is_drawn: bool) -> None:
        super().__init__(stream)
        self.is_drawn = is_drawn
        self.written_s = 0.0

    def __call__(self, what: str, seconds: float) -> None:
        """Draw, or write, unless that was done a moment ago."""
        shown = one_line(what)
        if self.is_drawn:
            room = max(0, columns(self.stream) - 1)
            self.draw(f"{shown[: max(0, room - 8)]}  {elapsed(seconds)}"[:room])
        elif seconds < self.written_s:  # another step began
            self.written_s = 0.0
        elif seconds - self.written_s >= PLAIN_INTERVAL_S:
            self.written_s = seconds
            self._write(f"bufdb: {shown}, {seconds:.0f} s\n")


@contextlib.contextmanager
def progress(unit: str, *, is_quiet: bool = False) -> Iterator[Observer | None]:
    """Yield an observer that draws on standard error within the block; None if not a terminal.

    Args:
        unit: one of UNITS: bytes, shown in MB, or modules.
        is_quiet: always yield None.
    """
    if is_quiet or sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield None
        return
    with _showing(Progress(sys.stderr, unit)) as shown:
        yield shown


@contextlib.contextmanager
def waiting(*, is_quiet: bool = False) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a function that shows the current step within the block; None if quiet.

    Its arguments: the step, and the seconds since it began.
    """
    if is_quiet or sys.stderr is None or sys.stderr.closed:
        yield None
        return
    with _showing(Waiting(sys.stderr, is_drawn=sys.stderr.isatty())) as shown:
        yield shown


@contextlib.contextmanager
def _showing(shown: _Shown) -> Iterator[_Shown]:
    """Yield a line, which `hide` removes within the block, and its end."""
    _shown.append(shown)
    try:
        yield shown
    finally:
        _shown.remove(shown)
        shown.hide()


def hide() -> None:
    """Erase the visible lines before other output."""
    for shown in _shown:
        shown.hide()


def line(done: int, total: int, seconds: float, unit: str, width: int) -> str:
    """Return '45 %  ████▌      512 of 1131 MB  148 MB/s  0:04 left', in at most `width` columns.

    The rate is the average so far; before anything is done there is neither rate nor time.
    """
    share = done / total if total else 0.0
    size = UNITS[unit]
    parts = [f"{done / size:.0f} of {total / size:.0f} {unit}"]
    if done > 0 and seconds > 0:
        rate = done / seconds
        parts.append(f"{rate / size:.{0 if rate >= 10 * size else 1}f} {unit}/s")
        parts.append(f"{duration((total - done) / rate)} left")
    head, tail = f"{int(100 * share):3d} %", "  ".join(parts)
    room = min(30, width - len(head) - len(tail) - 4)
    drawn = f"  {bar(share, room):<{room}}" if room >= 5 else ""
    return f"{head}{drawn}  {tail}"[: max(0, width)]


def duration(seconds: float) -> str:
    """Return a remaining time, rounded up so that it is not too short: 0:04, 12:30, 1:02:03."""
    return elapsed(-(-seconds // 1))


def elapsed(seconds: float) -> str:
    """Return an elapsed time: 0:03, 12:30, 1:02:03."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"


def columns(stream: Any) -> int:
    """Return the value of COLUMNS, or the columns of the terminal that a stream writes to."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    except (OSError, ValueError):
        return _DEFAULT_COLUMNS
