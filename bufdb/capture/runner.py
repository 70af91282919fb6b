"""Start a child that imports the user's code, send it requests, relay its output, end it.

Invariant: whatever the user's code prints, closes, forks or raises, a request has an answer or an
error, and the child ends with everything that it started. `bufdb.capture.worker` is its inner side.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from bufdb.capture.worker import ANSWER, ANSWERS, FAILURE, KNOWN, STEP
from bufdb.errors import BufdbError, TooSlowError, UsageError

_TICK_S = 0.2
_GRACE_S = 2.0
"""Grace period for a process that was asked to end."""
_TAIL_LINES = 20
"""Last lines kept of the output of a process that ended without an answer."""
_TAIL_BYTES = 4 << 20
_FATAL = re.compile(r"F\d{4} |Fatal Python error|.*(Check failed: |LLVM (ERROR|Fatal))")
"""Messages of XLA, LLVM or Python before they abort; stack frames follow."""
_FATAL_LINES = 4
_NO_TILES = re.compile(
    r"\w+: INTERNAL: Couldn't find output tile sizes that satisfy hlo: (%\S+ = [^\s{]+)"
)
_SUSPECTED = re.compile(r"\s+(\S+\.py):(\d+):\d+ \[")
"""A line of XLA's with the place of an instruction."""
_MOST_READS = 64
"""Reads of what an ended process has printed: one that left its group may go on printing."""
_PASSED_ON = ("SIGTERM", "SIGHUP")

_START = """
import sys
from importlib import import_module, util
root, module, *arguments = sys.argv[1:]
if util.find_spec("bufdb") is None:
    sys.path.append(root)  # a checkout that is not installed
code = import_module(module).main(arguments)
import_module("bufdb.capture.worker").end(code)
"""

Observer = Callable[[str, float], None]
"""Receives the current step, and the seconds since the start of all steps."""
Relay = Callable[[bytes], None]
"""Receives what the user's code prints."""


# -- Failures --------------------------------------------------------------------------------------


class NotCompiledError(BufdbError):
    """The user's code, or XLA, gave up."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
        """Its output, to be shown before the message."""


class Died(NotCompiledError):
    """The process ended without an answer."""

    def __init__(self, what: str, ended: str, step: str, lines: Sequence[str]) -> None:
        super().__init__(f"{what}: {ended} while {step}", lines)
        self.ended = ended
        """How, in words."""

    @property
    def refusal(self) -> str:
        """The compiler's last words, if it ended the process once it had planned the memory."""
        return f"{self.ended}: {self.lines[0] if self.lines else 'no message'}"


def end_of(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"its process was ended by signal {-code}"


def failure_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines in which a process says why it gives up, or else its last lines."""
    printed = [line for line in lines if line.strip()]
    for number, line in enumerate(printed):
        if _FATAL.match(line):
            return printed[number : number + _FATAL_LINES]
    return printed[-_TAIL_LINES:]


def without_tiles(message: str, lines: Sequence[str]) -> str | None:
    """Return in one line what to do where XLA chose a kernel that it then cannot make.

    Of a product whose rows are several axes of a value, such as 128 x 196, Triton's tiles cross
    the inner one; ahead of time no other kernel is tried.

    Args:
        message: of the step that failed; None is returned for any other one.
        lines: the rest of what XLA said.
    """
    chosen = _NO_TILES.search(message)
    if chosen is None:
        return None
    place = next((one for line in lines if (one := _SUSPECTED.match(line))), None)
    where = "" if place is None else f" ({Path(place[1]).name}:{place[2]})"
    return (
        f"{message[: chosen.start()]}XLA has no Triton kernel for {chosen[1]}{where}; set "
        "XLA_FLAGS=--xla_gpu_enable_triton_gemm=false, which leaves products to cuBLAS"
    )


# -- Signals to this process -----------------------------------------------------------------------


class Terminated(BaseException):
    """This process received a signal that ends it."""


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


# -- The child -------------------------------------------------------------------------------------


def to_stderr(data: bytes) -> None:
    """Write what the user's code prints to standard error."""
    sys.stderr.write(data.decode(errors="replace"))
    sys.stderr.flush()


def own_command(module: str, *arguments: str) -> list[str]:
    """Return a command that calls `main` of a module of bufdb in a process of this Python.

    The working directory is not on its path (-P): a types.py there is not run.
    """
    root = str(Path(__file__).parents[2])
    return [sys.executable, "-P", "-c", _START, root, module, *arguments]


def _pipe(path: Path, flags: int = 0) -> int:
    """Make a named pipe and open both ends.

    Without a writer it would be at its end until the child opens it; without a reader it could not
    be opened.
    """
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | flags)


@dataclass(frozen=True)
class Watch:
    """How long a child may take, and who sees what it does and prints."""

    timeout_s: float | None = None
    """For the message; see `deadline`."""
    is_verbose: bool = False
    """Whether its standard error is ours; else its end is kept, for a failure."""
    observer: Observer | None = None
    relay: Relay = to_stderr
    """Receives its standard output, because ours is for the answer."""
    hint: Callable[[str], str] = lambda text: ""
    """Takes what a failed child printed, and returns what to do, after a semicolon."""
    began: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    """On `time.monotonic`'s clock."""

    @classmethod
    def from_now(cls, timeout_s: float | None, **fields: Any) -> Watch:
        """Return a watch whose deadline is `timeout_s` from now."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return cls(timeout_s, deadline=deadline, **fields)


class Child:
    """A process that imports the user's code, in a session and process group of its own.

    It is a context manager, and the child does not outlive its block.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        what: str,
        watch: Watch,
        variables: Mapping[str, str],
        requests: str | None = None,
    ) -> None:
        """Start it.

        Args:
            command: calls `bufdb.capture.worker.serve` with `folder`.
            folder: for its files; the child removes it if this process is killed.
            what: names the work in messages.
            watch: how it is watched.
            variables: its environment.
            requests: name of a pipe in `folder` that it reads requests from, by default its
                standard input.

        Raises:
            NotCompiledError: it cannot be started.
        """
        self.what, self.watch = what, watch
        self.known: dict[str, Any] = {}
        """What the child has reported for the case that it dies."""
        self._step = f"starting {what}"
        self._data, self._is_printing, self._has_partial_line = b"", True, False
        self._is_idle, self._is_closed = True, False
        self._log = folder / "stderr"
        self._answers = _pipe(folder / ANSWERS, os.O_NONBLOCK)
        self._requests = None if requests is None else _pipe(folder / requests)
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env=variables,
                    stdin=subprocess.PIPE if requests is None else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=None if watch.is_verbose else log,
                    start_new_session=True,
                )
        except OSError as error:
            self._close_pipes()
            raise NotCompiledError(f"cannot start {command[0]}: {error.strerror}") from error

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the child's answer to a request.

        Raises:
            UsageError: the request is wrong.
            Died: the process ended.
            NotCompiledError: the user's code or XLA gave up.
            TooSlowError: the deadline has passed.
        """
        self._is_idle = False
        self._send(request)
        while True:
            now = time.monotonic()
            if self.watch.deadline is not None and now > self.watch.deadline:
                limit = f"{self.watch.timeout_s:g} s (--timeout)"
                raise TooSlowError(f"stopped after {limit}, while {self._step}")
            if self.watch.observer is not None:
                self.watch.observer(self._step, now - self.watch.began)
            code = self._process.poll()
            if code is None:
                self._read(_TICK_S)
            else:
                self._end_group()
                self._read_rest()
            for message in self._messages():
                if ANSWER in message or FAILURE in message:
                    self._is_idle = True
                    return self._checked(message)
            if code is not None:
                # Not by this process: most often the kernel, where memory runs out.
                hint = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
                raise Died(self.what, end_of(code) + hint, self._step, self._last_lines())

    def _checked(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if FAILURE not in message:
            return dict(message[ANSWER])
        failure = message[FAILURE]
        if failure["exit_code"] == UsageError.exit_code:
            raise UsageError(failure["message"])
        hint = self.watch.hint("\n".join([*failure["trace"], failure["message"]]))
        lines = [] if self.watch.is_verbose else failure["trace"]
        if (line := without_tiles(failure["message"], failure["trace"])) is not None:
            raise NotCompiledError(line)
        raise NotCompiledError(failure["message"] + hint, lines)

    def _send(self, request: Mapping[str, Any] | None) -> None:
        if self._requests is not None:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as is seen by its answer
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield answers and failures; take note of steps and of what is known."""
        while b"\n" in self._data:
            line, _, self._data = self._data.partition(b"\n")
            message = json.loads(line)
            self._step = message.get(STEP, self._step)
            self.known |= message.get(KNOWN, {})
            yield message

    def _read(self, wait_s: float) -> bool:
        """Relay output and read messages that come within a time; return whether any came."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        streams = [self._answers, *([output] if self._is_printing else [])]
        ready, _, _ = select.select(streams, [], [], wait_s)
        if output in ready:
            data = os.read(output, 1 << 16)
            self._is_printing = data != b""  # else the user's code has closed it
            if data:
                self._has_partial_line = not data.endswith(b"\n")
                self.watch.relay(data)
        if self._answers in ready:
            self._data += os.read(self._answers, 1 << 16)
        return bool(ready)

    def _read_rest(self) -> None:
        """Read what an ended process has written."""
        for _ in range(_MOST_READS):
            if not self._read(0):
                break

    def _last_lines(self) -> Sequence[str]:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            return failure_lines(file.read().decode(errors="replace").splitlines())

    # -- Its end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End it: by itself if it has nothing to do, else by signals.

        With a pipe for requests it is a user's command, and nothing of it runs any more.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._requests is not None and self._is_idle:
                self._end_group()
            elif self._is_idle:  # so that what the user's code registered for the exit runs
                self._send(None)
                self._wait(_GRACE_S)
            if self._process.poll() is None:
                self._signal(signal.SIGTERM)
                self._wait(_GRACE_S)
        finally:
            self._end_group()
            self._process.wait()
            self._read_rest()
            if self._has_partial_line:
                self.watch.relay(b"\n")
            assert self._process.stdout is not None
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
            self._process.stdout.close()
            self._close_pipes()

    def _close_pipes(self) -> None:
        os.close(self._answers)
        if self._requests is not None:
            os.close(self._requests)

    def _wait(self, seconds: float) -> None:
        """Wait for the end of the process, and relay what it prints until then."""
        until = time.monotonic() + seconds
        while self._process.poll() is None and (rest := until - time.monotonic()) > 0:
            if not self._is_printing:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(rest)
            self._read(min(rest, _TICK_S))

    def _signal(self, number: int) -> None:
        # The group is gone if all of it has ended; macOS refuses to signal what has.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _end_group(self) -> None:
        """End what the user's code has started, and the process itself."""
        self._signal(signal.SIGKILL)
