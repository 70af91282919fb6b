"""Client for a traced function that runs in a child process, or in this one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bufdb.capture.before import program_in, seconds_before
from bufdb.capture.dump import programs
from bufdb.capture.runner import Child, Died, Watch, own_command
from bufdb.capture.simulated import Devices
from bufdb.capture.simulation import NOTES
from bufdb.dumps.place import Place
from bufdb.errors import BufdbError, TooSlowError
from bufdb.fitting.plans import Changes, Parts, Plan, Program, Site, Traced
from bufdb.fitting.records import as_json, from_json
from bufdb.read.own import NOTHING_MORE, Own

if TYPE_CHECKING:
    from bufdb.capture.catching import Call
    from bufdb.capture.script import Script

_SERVER = "bufdb.fitting.child"
MISTRACED = "mistraced"
"""Key of the answer of a child in which `MistracedError` was raised."""


def require_equal(written: Sequence[Sequence[str]], patched: Sequence[Sequence[str]]) -> None:
    """Refuse patched files whose losses differ, by the digests of their outputs.

    Raises:
        BufdbError: they do, or are not known to be equal.
    """
    if written != patched:
        raise BufdbError("the patched files are not known to compute the same, by their equations")


def require_same_equations(written: Sequence[str], patched: Sequence[str]) -> None:
    """Refuse parts that compute something else than the whole, such as by the size of an axis.

    Raises:
        BufdbError: they do.
    """
    counts, others = Counter(written), Counter(patched)
    for one in sorted((counts - others) | (others - counts)):
        raise BufdbError(f"a part does not compute what the whole does: {one}")


class UncheckedError(BufdbError):
    """The patched files cannot be compiled here; they may be right."""


class UnequalError(BufdbError):
    """The patched files compute something else."""


class MistracedError(Exception):
    """Traces that were returned before are not those of JAX; those from now on are."""


class Numbers(NamedTuple):
    """What the losses as written give for random numbers."""

    path: str
    size: int
    """Of the batch with which the losses of the patched files give the same."""


@dataclass(frozen=True)
class Dumped:
    """The dump of a compilation."""

    files: Mapping[str, Path | Place]
    """By name, see `bufdb.dumps.place.Files`."""
    refusal: str | None
    """XLA's message if it planned the memory and then gave up."""
    seconds: float
    """That the compilation took, whenever it was made."""
    is_before: bool = False
    """Whether an earlier call made it."""
    program: str = ""
    """What identifies the program without the lines of its source; '' if unknown."""
    placed: str = ""
    """The same with them."""
    traced: Traced | None = None
    """What a trace says of patched files whose plan no trace has; else None."""


def dumped_in(folder: Path, refusal: str | None, seconds: float) -> Dumped:
    """Return the dump in a folder, of a compilation that was made now or by an earlier call."""
    before = seconds_before(folder)
    identity = program_in(folder)
    return Dumped(programs(folder), refusal, before or seconds, before is not None, *identity)


@dataclass(frozen=True)
class Check:
    """What patched files are compared with before they are compiled."""

    plan: Dumped | None = None
    """Of the plan: where the patched files make its program, that is their compilation."""
    numbers: Numbers | None = None
    """What their losses are to give, if they are to be compared."""
    is_compared: bool = False
    """Whether their losses must have the equations that they have as written."""
    parts: tuple[Parts, ...] = ()
    """Lines that compute parts there, whose equations must be those of the lines as written."""

    @property
    def known(self) -> str:
        """Return what identifies the program of the plan; '' if unknown."""
        return "" if self.plan is None else self.plan.program

    def settled(self, dumped: Dumped) -> Dumped:
        """Return the compilation of the patched files."""
        is_known = self.plan is not None and dumped.program and dumped.program == self.known
        return self.plan if is_known and self.plan is not None else dumped


class Session(Protocol):
    """A function whose plans are traced and compiled."""

    device: str
    """JAX's name for the kind of device."""

    def program(self) -> Program:
        """Return what can be switched."""

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan.

        Raises:
            MistracedError: see there.
        """

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return the changes of some kinds that plans may have from now on in `extra`."""

    def compile(self, plan: Plan, what: str, *, is_full: bool) -> Dumped:
        """Compile a plan; `what` names it in messages.

        Raises:
            MistracedError: see there.
            BufdbError: it cannot be compiled.
        """

    def numbers(self, size: int, path: str) -> bool:
        """Write what the losses of a batch of a size give for random numbers, if they are small.

        Raises:
            BufdbError: they cannot be run.
        """

    def patched(self, texts: Mapping[str, str], rest: Plan, check: Check) -> Dumped:
        """Compile the function as files with these texts have it, with the rest of a plan.

        Args:
            texts: by path.
            rest: what of the plan no text has: donations, options of the compiler.
            check: what they are compared with before.

        Raises:
            UncheckedError: there is no way to do that here.
            UnequalError: they compute something else.
            BufdbError: it cannot be compiled.
        """


Answering = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns the answer of a process, or of a function in this one, to a request."""


def require_right(check: Check, own: Answering, other: Answering) -> Traced | None:
    """Refuse patched files that compute something else, by what is to be compared.

    Returns:
        What a trace says of patched files that compute parts; None of others.

    Args:
        check: what that is.
        own: asks the function as written.
        other: asks that of the patched files.

    Raises:
        UnequalError: they give other numbers.
        BufdbError: they have other equations, or are not known to have the same.
    """
    if check.numbers is not None:
        require_alike(other, check.numbers)
    if check.is_compared:
        written, patched = (ask({"do": "digests"})["digests"] for ask in (own, other))
        require_equal(written, patched)
    if check.parts:
        written, patched = (
            ask({"do": "equations", "parts": as_json(parts)})["equations"]
            for ask, parts in ((own, check.parts), (other, ()))
        )
        require_same_equations(written, patched)
        return from_json(Traced, other({"do": "trace", "plan": as_json(Plan())})["traced"])
    return None


def require_alike(ask: Answering, numbers: Numbers) -> None:
    """Ask a process whether its losses give the same as those as written.

    Raises:
        UnequalError: they do not.
    """
    if why := ask({"do": "alike", "size": numbers.size, "path": numbers.path})["why"]:
        raise UnequalError(why)


def compiling(rest: Plan, check: Check) -> dict[str, Any]:
    """Return the request to compile patched files, unless they make the program of their plan."""
    what = "the patched files"
    return {
        "do": "compile", "plan": as_json(rest), "what": what, "is_full": True, "known": check.known
    }  # fmt: skip


@dataclass
class Apart:
    """A function of a user's file, in a child process that does not outlive this one.

    Or a call of a user's command, in the process that makes it.
    """

    spec: str
    args: str
    target: str | None
    folder: Path
    gradients_only: bool = False
    watch: Watch = field(default_factory=Watch)
    script: Script | None = None
    """The command, in place of `spec` and `args`."""
    own: Own = NOTHING_MORE
    """What of libraries counts as the user's."""
    devices: Devices = field(default_factory=Devices)
    device: str = ""
    stopped: str = ""
    """At which of its calls a command was stopped."""
    notes: tuple[str, ...] = ()
    """On devices that the program did not have as its job has them."""
    _call: Call | None = None
    _child: Child | None = field(default=None, repr=False)
    _count: int = 0
    _kinds: tuple[str, ...] = ()
    """Of the changes that plans may have."""
    _traced: Mapping[Plan, Traced] = field(default_factory=dict, repr=False)
    """Of plans that earlier calls asked about."""

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
        reply = self._started({}, has_program=True)
        self._traced = {
            from_json(Plan, plan): from_json(Traced, traced) for plan, traced in reply["known"]
        }
        return from_json(Program, reply["program"])

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan."""
        known = self._traced.get(plan)
        if known is not None:
            return known
        return from_json(Traced, self._ask({"do": "trace", "plan": as_json(plan)})["traced"])

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        sites = self._ask({"do": "lines", "plan": as_json(plan)})
        return tuple(Site(*site) for site in sites["sites"])

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return the changes of some kinds that plans may have from now on in `extra`."""
        self._kinds = tuple(dict.fromkeys([*self._kinds, *kinds]))
        return from_json(Changes, self._ask({"do": "changes", "kinds": list(kinds)})["changes"])

    def compile(self, plan: Plan, what: str, *, is_full: bool) -> Dumped:
        """Compile a plan; `what` names it in messages.

        Raises:
            NotCompiledError: the user's code or XLA gave up.
        """
        request = {"do": "compile", "plan": as_json(plan), "what": what, "is_full": is_full}
        return self._dumped(request)

    def numbers(self, size: int, path: str) -> bool:
        """Write what the losses of a batch of a size give for random numbers, if they are small."""
        return bool(self._ask({"do": "numbers", "size": size, "path": path})["is_small"])

    def patched(self, texts: Mapping[str, str], rest: Plan, check: Check) -> Dumped:
        """Compile the function of these texts in a process of its own; see `Session`."""
        self._count += 1
        folder = self.folder / f"patched-{self._count}"
        folder.mkdir()
        other = replace(self, folder=folder, _child=None, _count=0)
        with other:
            other._started(texts, has_program=False)
            traced = require_right(check, self._ask, other._ask)
            dumped = check.settled(other._dumped(compiling(rest, check)))
            return replace(dumped, traced=traced)

    # -- Requests ----------------------------------------------------------------------------------

    def _started(self, texts: Mapping[str, str], *, has_program: bool) -> dict[str, Any]:
        self.close()
        variables = self.devices.variables(self.target)
        request = {
            "do": "start",
            "spec": self.spec,
            "args": self.args,
            "target": self.target,
            "gradients_only": self.gradients_only,
            "own": self.own.pattern,
            "sources": dict(texts),
            "has_program": has_program,
        }
        if self.script is None:
            command = own_command(_SERVER, str(self.folder))
            self._child = Child(command, self.folder, self.spec, self.watch, variables)
            reply = self._ask(request)
        else:
            reply = self._run_to_call(replace(self.script, texts=texts), request, variables)
        self.device = str(reply["device"])
        assert self._child is not None
        self.notes = tuple(self._child.known.get(NOTES, ()))
        return reply

    def _run_to_call(
        self, script: Script, request: Mapping[str, Any], variables: Mapping[str, str]
    ) -> dict[str, Any]:
        """Run the command up to its call; later times up to the same one, without its output.

        Raises:
            BufdbError: it makes another call there.
        """
        from bufdb.capture.script import at_call, calls_of, stopped_note

        watch = self.watch
        if self._call is not None:
            script = at_call(script, self._call)
            watch = replace(watch, relay=lambda data: None)
        else:
            script = script.settled(self.folder, watch, variables)
        self._child = child = script.child(self.folder, _SERVER, self.spec, watch, variables)
        reply = self._ask(request, partial(script.first, child))
        call = calls_of(child)[-1]
        if self._call is None:
            self._call, self.stopped = call, stopped_note(script, child)
        elif call.name != self._call.name:
            raise BufdbError(
                f"call {call.number} of {self.spec} is {call.name}, and was {self._call.name}"
            )
        return reply

    def _dumped(self, request: dict[str, Any]) -> Dumped:
        self._count += 1
        dumps = self.folder / f"dumps-{self._count}"
        dumps.mkdir()
        began = time.monotonic()
        try:
            reply = self._ask({**request, "dumps": str(dumps)})
        except Died as died:
            if not (files := programs(dumps)):
                raise
            # The compiler ended the process once it had planned the memory.
            self._started({}, has_program=True)
            if self._kinds:
                self.changes(self._kinds)
            return Dumped(files, died.refusal, time.monotonic() - began)
        return dumped_in(dumps, reply["refusal"], float(reply["seconds"]))

    def _ask(
        self,
        request: Mapping[str, Any],
        ask: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Return the child's answer.

        Raises:
            UsageError: the request is wrong.
            NotCompiledError: the user's code or XLA gave up.
            TooSlowError: the deadline has passed.
            MistracedError: see there.
        """
        if self._child is None:
            self._started({}, has_program=True)
        assert self._child is not None
        try:
            reply = (ask or self._child.ask)(request)
        except (Died, TooSlowError, KeyboardInterrupt):
            self.close()
            raise
        if reply.get(MISTRACED):
            self._traced = {}
            raise MistracedError
        return reply
