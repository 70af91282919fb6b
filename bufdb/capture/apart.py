"""Compile a function of a user's file in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bufdb.errors import BufdbError, TooSlowError, UsageError

if TYPE_CHECKING:
    from bufdb.capture.dump import Dumped

QUIET = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
"""For a target: keeps JAX from searching for devices, locally and in the cloud."""
_TICK_S = 0.2
_GRACE_S = 2.0
"""Grace period for a process that was asked to end."""
_TAIL_LINES = 20
"""Last lines kept of the output of a process that ended without an answer."""
_FATAL = re.compile(r"F\d{4} |Fatal Python error|.*(Check failed: |LLVM (ERROR|Fatal))")
"""Messages of XLA, LLVM or Python before they abort; stack frames follow."""
_FATAL_LINES = 4
_PASSED_ON = ("SIGTERM", "SIGHUP")

_START = """
import sys
from importlib import import_module, util
root, module, *given = sys.argv[1:]
if util.find_spec("bufdb") is None:
    sys.path.append(root)  # a checkout that is not installed
sys.exit(import_module(module).main(given))
"""

Observer = Callable[[str, float], None]
"""Receives the current step, and the seconds since the start of all steps."""


Relay = Callable[[bytes], None]
"""Receives what the user's code prints."""


class NotCompiledError(BufdbError):
    """The user's code, or XLA, gave up."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
        """Its output, to be shown before the message."""


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    files: Dumped
    device: str
    """JAX's name for the kind of device."""
    refusal: str | None
    """XLA's message if it planned the memory and then gave up."""
    note: str | None = None
    """On what the dump does not have."""


class Terminated(BaseException):
    """This process received a signal that ends it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def signals_heeded() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `Terminated` within the block, and take effect at its end.

    So cleanup code runs. Ignored signals (nohup) stay ignored.
    """
    seen: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        raise Terminated(number)

    numbers = [getattr(signal, name) for name in _PASSED_ON]
    before = {
        number: signal.signal(number, handle)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if seen:
            signal.raise_signal(seen[0])


def to_stderr(data: bytes) -> None:
    """Write what the user's code prints to standard error."""
    sys.stderr.write(data.decode(errors="replace"))
    sys.stderr.flush()


def child_command(module: str, *given: str) -> list[str]:
    """Return a command that calls `main` of a module of bufdb in a process of its own.

    The working directory is not on its path (-P): a types.py there is not run.
    """
    root = str(Path(__file__).parents[2])
    return [sys.executable, "-P", "-c", _START, root, module, *given]


def compiled_apart(
    spec: str,
    args: str,
    target: str | None,
    folder: Path,
    *,
    timeout_s: float | None = None,
    is_verbose: bool = False,
    observer: Observer | None = None,
    relay: Relay = to_stderr,
) -> Compiled:
    """Compile FILE:FUNCTION in a child process of this Python, which does not outlive this one.

    What the file prints goes to standard error, because standard output is for the answer; what it
    and XLA write to standard error is shown with `is_verbose`, or else its end if there is no
    answer.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        TooSlowError: it took longer than `timeout_s`.
        NotCompiledError: the file or XLA failed, or nothing was dumped.
    """
    from bufdb.capture.child import DEVICE, DUMPS, FOUND
    from bufdb.capture.dump import programs

    environment = dict(os.environ)
    if target is not None:
        environment |= QUIET
    theirs, ours = os.pipe()
    given = [spec, args, target or "", str(folder), str(theirs)]
    log = folder / "stderr"
    what = spec if target is None else f"{spec} for {target}"
    try:
        with log.open("wb") as file:
            child = subprocess.Popen(
                child_command("bufdb.capture.child", *given),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if is_verbose else file,
                pass_fds=[theirs],
            )
        with ending(child):
            watch(child, folder, timeout_s, observer, relay, what)
    finally:
        os.close(theirs)
        os.close(ours)
    try:
        found = json.loads((folder / FOUND).read_text(encoding="utf-8"))
    except FileNotFoundError:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        said, ended = failure_lines(lines), end_of(child.returncode)
        if files := programs(folder / DUMPS):
            device = (folder / DEVICE).read_text(encoding="utf-8")
            return Compiled(files, device, f"{ended}: {said[0] if said else 'no message'}")
        raise NotCompiledError(f"{what} could not be compiled: {ended}", said) from None
    if "message" in found:
        if found["exit_code"] == UsageError.exit_code:
            raise UsageError(found["message"])
        raise NotCompiledError(found["message"], [] if is_verbose else found["trace"])
    return Compiled(programs(folder / DUMPS), str(found["device"]), found["refusal"], found["note"])


def failure_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines in which a process says why it gives up, or else its last lines."""
    said = [line for line in lines if line.strip()]
    for number, line in enumerate(said):
        if _FATAL.match(line):
            return said[number : number + _FATAL_LINES]
    return said[-_TAIL_LINES:]


def end_of(code: int) -> str:
    """Describe how a process ended."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}"


@contextmanager
def ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ensure that the child has ended after the block; pass a terminating signal on to it."""
    number = signal.SIGTERM
    try:
        yield
    except Terminated as error:
        number = signal.Signals(error.number)
        raise
    finally:
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_S)
            child.kill()
            child.wait()
        assert child.stdout is not None
        child.stdout.close()


def watch(
    child: subprocess.Popen[bytes],
    folder: Path,
    timeout_s: float | None,
    observer: Observer | None,
    relay: Relay,
    what: str,
) -> None:
    """Wait for the child, relaying what it prints.

    Raises:
        TooSlowError: it takes too long.
    """
    from bufdb.capture.child import DOING

    assert child.stdout is not None
    began, is_open = time.monotonic(), True
    doing = f"starting {what}"
    while child.poll() is None:
        seconds = time.monotonic() - began
        with contextlib.suppress(FileNotFoundError):
            doing = (folder / DOING).read_text(encoding="utf-8")
        if timeout_s is not None and seconds > timeout_s:
            raise TooSlowError(f"stopped after {timeout_s:g} s (--timeout), while {doing}")
        if observer is not None:
            observer(doing, seconds)
        if is_open:
            is_open = forward_output(child.stdout.fileno(), relay, _TICK_S)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_TICK_S)
    # Not until end of file: a process that the user's code has started may keep the pipe open.
    while is_open and select.select([child.stdout], [], [], 0)[0]:
        is_open = forward_output(child.stdout.fileno(), relay, 0)


def forward_output(stream: int, relay: Relay, wait_s: float) -> bool:
    """Relay what can be read from a stream within `wait_s`; return whether more may come."""
    if not select.select([stream], [], [], wait_s)[0]:
        return True
    data = os.read(stream, 1 << 16)
    if data:
        relay(data)
    return data != b""
