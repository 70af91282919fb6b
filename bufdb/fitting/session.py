"""Client for a traced function that runs in a child process, or in this one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bufdb.capture.apart import (
    QUIET,
    NotCompiledError,
    Observer,
    Relay,
    child_command,
    end_of,
    ending,
    failure_lines,
    forward_output,
    to_stderr,
)
from bufdb.dumps.place import Place
from bufdb.errors import TooSlowError, UsageError
from bufdb.fitting.plans import Changes, Plan, Program, Site, Traced, as_json, from_json

_TICK_S = 0.2


@dataclass(frozen=True)
class Dumped:
    """The dump of a compilation."""

    files: Mapping[str, Path | Place]
    """By name, see `bufdb.dumps.place.Files`."""
    refusal: str | None
    """XLA's message if it planned the memory and then gave up."""
    seconds: float


class Session(Protocol):
    """A function whose plans are traced and compiled."""

    device: str
    """JAX's name for the kind of device."""

    def program(self) -> Program:
        """Return what can be switched."""

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan."""

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return the changes of some kinds that plans may have from now on in `extra`."""

    def compile(self, plan: Plan, what: str, *, is_full: bool) -> Dumped:
        """Compile a plan; `what` names it in messages.

        Raises:
            BufdbError: it cannot be compiled.
        """

    def patched(self, texts: Mapping[str, str], donated: tuple[int, ...]) -> Dumped:
        """Compile the function as files with these texts have it.

        Raises:
            BufdbError: it cannot be compiled.
        """


@dataclass
class Apart:
    """A function of a user's file, in a child process that does not outlive this one.

    What the file prints goes to standard error, because standard output is for the answer.
    """

    spec: str
    args: str
    target: str | None
    folder: Path
    gradients_only: bool = False
    deadline: float | None = None
    """On `time.monotonic`'s clock."""
    timeout_s: float | None = None
    """For the message."""
    is_verbose: bool = False
    observer: Observer | None = None
    relay: Relay = to_stderr
    device: str = ""
    _child: _Child | None = field(default=None, repr=False)
    _began: float = field(default_factory=time.monotonic)
    _count: int = 0
    _kinds: tuple[str, ...] = ()
    """Of the changes that plans may have."""

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    # -- The methods of a session ------------------------------------------------------------------

    def program(self) -> Program:
        """Return what can be switched."""
        return from_json(Program, self._started({}, has_program=True)["program"])

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan."""
        return from_json(Traced, self._ask({"do": "trace", "plan": as_json(plan)})["traced"])

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        found = self._ask({"do": "lines", "plan": as_json(plan)})
        return tuple(Site(*site) for site in found["sites"])

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return the changes of some kinds that plans may have from now on in `extra`."""
        self._kinds = tuple(kinds)
        return from_json(Changes, self._ask({"do": "changes", "kinds": list(kinds)})["changes"])

    def compile(self, plan: Plan, what: str, *, is_full: bool) -> Dumped:
        """Compile a plan; `what` names it in messages.

        Raises:
            NotCompiledError: the user's code or XLA gave up.
        """
        request = {"do": "compile", "plan": as_json(plan), "what": what, "is_full": is_full}
        return self._dumped(request)

    def patched(self, texts: Mapping[str, str], donated: tuple[int, ...]) -> Dumped:
        """Compile the function as files with these texts have it, in a process of its own.

        Raises:
            NotCompiledError: the user's code or XLA gave up.
        """
        self._count += 1
        folder = self.folder / f"patched-{self._count}"
        folder.mkdir()
        other = Apart(
            self.spec, self.args, self.target, folder, self.gradients_only, self.deadline,
            self.timeout_s, self.is_verbose, self.observer, self.relay, _began=self._began,
        )  # fmt: skip
        with other:
            other._started(texts, has_program=False)
            plan = as_json(Plan(donated=donated))
            what = "the patched files"
            return other._dumped({"do": "compile", "plan": plan, "what": what, "is_full": True})

    # -- Requests ----------------------------------------------------------------------------------

    def _started(self, texts: Mapping[str, str], *, has_program: bool) -> dict[str, Any]:
        self.close()
        self._child = _Child(self.folder, self.target, self.is_verbose)
        request = {
            "do": "start",
            "spec": self.spec,
            "args": self.args,
            "target": self.target,
            "gradients_only": self.gradients_only,
            "sources": dict(texts),
            "has_program": has_program,
        }
        found = self._ask(request)
        self.device = str(found["device"])
        return found

    def _dumped(self, request: dict[str, Any]) -> Dumped:
        from bufdb.capture.dump import programs

        self._count += 1
        dumps = self.folder / f"dumps-{self._count}"
        dumps.mkdir()
        began = time.monotonic()
        try:
            found = self._ask({**request, "dumps": str(dumps)})
        except NotCompiledError as error:
            if self._child is not None or not (files := programs(dumps)):
                raise
            # The compiler ended the process once it had planned the memory.
            self._started({}, has_program=True)
            if self._kinds:
                self.changes(self._kinds)
            refusal = error.lines[0] if error.lines else str(error)
            return Dumped(files, refusal, time.monotonic() - began)
        return Dumped(programs(dumps), found["refusal"], float(found["seconds"]))

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the child's answer.

        Raises:
            UsageError: the request is wrong.
            NotCompiledError: the user's code or XLA gave up.
            TooSlowError: the deadline has passed.
        """
        if self._child is None:
            self._started({}, has_program=True)
        from bufdb.capture.child import DOING  # NumPy, which --help does without

        child = self._child
        assert child is not None
        child.send(request)
        doing = f"starting {self.spec}"
        while True:
            with suppress(FileNotFoundError):
                doing = (self.folder / DOING).read_text(encoding="utf-8")
            now = time.monotonic()
            if self.deadline is not None and now > self.deadline:
                self.close()
                raise TooSlowError(f"stopped after {self.timeout_s:g} s (--timeout), while {doing}")
            if self.observer is not None:
                self.observer(doing, now - self._began)
            found = child.answer(self.relay)
            if found is not None:
                return self._checked(found)
            if child.has_ended:
                lines = child.said()
                code = child.process.returncode
                self.close()
                raise NotCompiledError(f"{self.spec}: {end_of(code)} while {doing}", lines)

    def _checked(self, found: dict[str, Any]) -> dict[str, Any]:
        if "message" not in found:
            return found
        if found["exit_code"] == UsageError.exit_code:
            raise UsageError(found["message"])
        raise NotCompiledError(found["message"], [] if self.is_verbose else found["trace"])


class _Child:
    """The process, and what passes to and from it."""

    def __init__(self, folder: Path, target: str | None, is_verbose: bool) -> None:
        self._stack = ExitStack()
        theirs, ours = os.pipe()
        answers, written = os.pipe()
        self._log = folder / "stderr"
        environment = dict(os.environ) if target is None else {**os.environ, **QUIET}
        command = child_command("bufdb.fitting.child", str(folder), str(theirs), str(written))
        try:
            with self._log.open("wb") as file:
                self.process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None if is_verbose else file,
                    pass_fds=[theirs, written],
                )
        finally:
            os.close(theirs)
            os.close(written)
        self._answers = answers
        self._data = b""
        self._is_printing = True
        self._stack.callback(os.close, ours)
        self._stack.callback(os.close, answers)
        self._stack.enter_context(ending(self.process))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self._stack.close()

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended without an answer."""
        return self.process.poll() is not None

    def said(self) -> Sequence[str]:
        """Return the lines in which it says why it ended."""
        return failure_lines(self._log.read_text(encoding="utf-8", errors="replace").splitlines())

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which is found when its answer is awaited
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self, relay: Relay) -> dict[str, Any] | None:
        """Return an answer that comes within a moment; None if none does."""
        assert self.process.stdout is not None
        stdout = self.process.stdout.fileno()
        streams = [self._answers, stdout] if self._is_printing else [self._answers]
        ready, _, _ = select.select(streams, [], [], _TICK_S)
        if stdout in ready:
            self._is_printing = forward_output(stdout, relay, 0)
        if self._answers in ready:
            data = os.read(self._answers, 1 << 16)
            if not data:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(_TICK_S)
            self._data += data
        line, end, rest = self._data.partition(b"\n")
        if not end:
            return None
        self._data = rest
        found: dict[str, Any] = json.loads(line)
        return found
