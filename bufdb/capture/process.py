"""Run a child process with the terminal and signals that it would have without bufdb."""

from __future__ import annotations

import os
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from bufdb.errors import CommandError

# Signals sent to bufdb that are meant for the command. Stop and continue need no forwarding: a
# terminal sends them to both.
_PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
KEPT_BYTES = 4 << 20
"""Kept bytes of standard error; a traceback with its message is far shorter."""
_STANDARD_ERROR = 2
_LAST_SECONDS = 1.0
_STOPPING = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class Ended:
    """The end of a command."""

    exit_code: int
    """128+n if signal n ended it."""
    is_stopped: bool
    """Whether bufdb received a signal meant to end it, whatever the command did then."""
    pid: int = 0
    signal: int | None = None
    """The signal that ended it."""


def run(
    command: Sequence[str], variables: Mapping[str, str], errors: StandardError | None = None
) -> Ended:
    """Run the command to its end.

    It stays in our process group, so that it can use the terminal, and ends with the group. Its
    standard error is kept in `errors`; if ours is a terminal, the command gets one, too.

    Raises:
        CommandError: it cannot be started.
    """
    seen: list[int] = []
    with _signals_passed_on(seen) as started, _passed_on(errors) as stream:
        try:
            child = subprocess.Popen(command, env=variables, stderr=stream)
        except FileNotFoundError as error:
            raise CommandError(f"no command {command[0]}", is_found=False) from error
        except OSError as error:
            raise CommandError(
                f"cannot start {command[0]}: {error.strerror}", is_found=True
            ) from error
        started(child)
        code = _wait(child)
    is_stopped = any(signal.Signals(number).name in _STOPPING for number in seen)
    number = -code if code < 0 else None
    return Ended(code if code >= 0 else 128 - code, is_stopped, child.pid, number)


class StandardError:
    """The end of what a command wrote to standard error."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._data += data
        if len(self._data) > 2 * KEPT_BYTES:
            del self._data[:-KEPT_BYTES]

    @property
    def text(self) -> str:
        """Everything that is kept."""
        return self._data.decode("utf-8", "replace")


@contextmanager
def _passed_on(errors: StandardError | None) -> Iterator[int | None]:
    """Yield the command's standard error, which is relayed to ours; None for ours itself.

    A pipe, or a terminal if ours is one, because commands write differently to a terminal.
    """
    ends = None if errors is None else _ends()
    if errors is None or ends is None:
        yield None
        return
    source, sink = ends
    thread = threading.Thread(target=_pass_on, args=(source, errors), daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        os.close(sink)
        # Processes that the command started may keep the pipe open: wait only for a moment.
        thread.join(_LAST_SECONDS)


def _ends() -> tuple[int, int] | None:
    """Return the ends to read and write the command's output; None if no terminal is available."""
    if not os.isatty(_STANDARD_ERROR):
        return os.pipe()
    try:
        source, sink = os.openpty()
    except OSError:
        return None
    with suppress(termios.error):
        attributes = termios.tcgetattr(sink)
        attributes[1] &= ~termios.OPOST  # our terminal does the output processing
        termios.tcsetattr(sink, termios.TCSANOW, attributes)
    _resize(source)
    return source, sink


def _resize(terminal: int) -> None:
    """Resize a terminal to the size of ours."""
    with suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(_STANDARD_ERROR))


def _pass_on(source: int, errors: StandardError) -> None:
    is_terminal = os.isatty(source)
    with os.fdopen(source, "rb", buffering=0) as stream, suppress(OSError):
        # A terminal whose other end is closed raises an error once everything has been read.
        while data := stream.read(1 << 16):
            errors.add(data)
            if is_terminal:
                _resize(source)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(_STANDARD_ERROR, rest) :]


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child on a separate thread.

    A signal that arrives just before the waiting system call is handled only after it, which here
    would be after the end of the child. This thread checks its signals every second.
    """
    thread = threading.Thread(target=child.wait, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(1)
    return child.wait()


@contextmanager
def _signals_passed_on(seen: list[int]) -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Send signals to the child once the yielded function was called with it; keep running.

    Received signals are added to `seen`.
    """
    children: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def send(number: int) -> None:
        # A terminal's signal has already reached the child: the whole foreground group gets it. A
        # second one could cut short the program's reaction to the first.
        if signal.Signals(number).name not in _FROM_TERMINAL or not _in_foreground():
            children[0].send_signal(number)

    def handle(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if children:
            send(number)
        else:
            waiting.append(number)

    def started(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        while waiting:
            send(waiting.pop(0))

    before = {}
    for name in _PASSED_ON:
        number = getattr(signal, name)
        # Ignored signals (nohup, a background job) stay ignored, also for the child.
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Return whether our process group is the one that a terminal sends its signals to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
