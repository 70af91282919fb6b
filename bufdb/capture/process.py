"""A child process that has its terminal and its signals as if it had been started without bufdb."""

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

# Whoever sends these to bufdb means the command. Stop and continue need no help: a terminal sends
# them to both.
_PASSED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
KEPT_BYTES = 4 << 20
"""A traceback and the message below it are far shorter."""
_STANDARD_ERROR = 2
_LAST_SECONDS = 1.0
_STOPPING = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    """128+n if signal n ended it."""
    is_stopped: bool
    """Whether we were sent a signal meanwhile that is meant to end it, whatever it did then."""


def run(command: Sequence[str], variables: Mapping[str, str], said: Said | None = None) -> Ended:
    """Run the command to its end.

    It keeps our process group, so that it can use the terminal, and dies with the group. What it
    writes to standard error is kept in `said`; where ours is a terminal, the command has one, too.

    Raises:
        CommandError: it cannot be started.
    """
    seen: list[int] = []
    with _signals_passed_on(seen) as started, _passed_on(said) as stream:
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
    return Ended(code if code >= 0 else 128 - code, is_stopped)


class Said:
    """The end of what a command wrote to standard error."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Add what comes next."""
        self._data += data
        if len(self._data) > 2 * KEPT_BYTES:
            del self._data[:-KEPT_BYTES]

    @property
    def text(self) -> str:
        """All that is kept."""
        return self._data.decode("utf-8", "replace")


@contextmanager
def _passed_on(said: Said | None) -> Iterator[int | None]:
    """What the command's standard error is, which goes to ours as it comes; None for ours itself.

    A pipe, or where ours is a terminal another one, for commands write other things to a terminal.
    """
    ends = None if said is None else _ends()
    if said is None or ends is None:
        yield None
        return
    source, sink = ends
    thread = threading.Thread(target=_pass_on, args=(source, said), daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        os.close(sink)
        # What the command started may live on and hold the pipe: it has a moment to be read.
        thread.join(_LAST_SECONDS)


def _ends() -> tuple[int, int] | None:
    """Where to read what the command writes, and where it is written; None if none can be had."""
    if not os.isatty(_STANDARD_ERROR):
        return os.pipe()
    try:
        source, sink = os.openpty()
    except OSError:
        return None
    with suppress(termios.error):
        attributes = termios.tcgetattr(sink)
        attributes[1] &= ~termios.OPOST  # ours makes lines of what is written
        termios.tcsetattr(sink, termios.TCSANOW, attributes)
    _resize(source)
    return source, sink


def _resize(terminal: int) -> None:
    """Let a terminal be as large as ours."""
    with suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(_STANDARD_ERROR))


def _pass_on(source: int, said: Said) -> None:
    is_terminal = os.isatty(source)
    with os.fdopen(source, "rb", buffering=0) as stream, suppress(OSError):
        # A terminal whose other end is closed gives an error, after all that was written.
        while data := stream.read(1 << 16):
            said.add(data)
            if is_terminal:
                _resize(source)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(_STANDARD_ERROR, rest) :]


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child on a thread of its own.

    A signal that comes just before the system call that waits is handled only after it, which here
    would be after the end of the child. This thread looks at its signals every second.
    """
    thread = threading.Thread(target=child.wait, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(1)
    return child.wait()


@contextmanager
def _signals_passed_on(seen: list[int]) -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Signals go to the child from when the function given is called with it; ours live on.

    What comes is added to `seen`.
    """
    children: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def send(number: int) -> None:
        # From a terminal the child has it already: the whole foreground group gets it. Twice it
        # could cut short what the program does on the first.
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
        # What is ignored (nohup, a job in the background) stays so, also for the child.
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether our process group is the one that a terminal sends its signals to."""
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
