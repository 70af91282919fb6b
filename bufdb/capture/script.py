"""Run a user's command up to a call of a jitted function, and ask about the call there."""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bufdb.capture.catching import CALL, REQUESTS, WAITING, Call, is_chosen
from bufdb.capture.hooked import PLAN, ROOT, TEXTS
from bufdb.capture.processes import CHAINED
from bufdb.capture.runner import Child, Died, NotCompiledError, Watch
from bufdb.capture.simulated import require_one_process
from bufdb.capture.simulation import NOTES
from bufdb.capture.words import require_seen
from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.read.own import NOTHING_MORE, Own

LARGEST = "largest"
"""Value of --call: of one round of steps the largest call that takes a gradient."""
_PLAN = "call.json"
_SITE = (
    CHAINED
    + """
if "_bufdb_hooked" not in sys.modules:
    _loaded("_bufdb_hooked", {hooked!r}).install()
"""
)
_SHOWN = 8
"""Most names in a message."""


class NoCallError(UsageError):
    """A command ended without the call that was asked for."""

    def __init__(self, message: str, calls: Sequence[Call]) -> None:
        super().__init__(message)
        self.calls = calls


@dataclass(frozen=True)
class Script:
    """A command, and at which of its jitted calls it is stopped.

    By default that is the first one that takes a gradient.
    """

    words: tuple[str, ...]
    name: str | None = None
    """Glob of the function's name; its first call is meant."""
    number: int | None = None
    """Number of the call, in the order of `bufdb calls`."""
    occurrence: int | None = None
    """Which call of that name; None for the first that the glob matches."""
    is_to_end: bool = False
    """Whether a call that takes a gradient is executed like the others."""
    is_largest: bool = False
    """Whether the largest that takes a gradient is meant; see `settled`."""
    is_round: bool = False
    """Whether it runs until a call that takes a gradient is made again."""
    fit: int | None = None
    """Number of the call of `bufdb.fit` at which it is stopped, in place of a jitted call."""
    round_end: str = ""
    """How far it ran so."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Texts in place of those of the files of these absolute names."""
    own: Own = NOTHING_MORE
    """What of libraries counts as the user's."""

    @classmethod
    def chosen(cls, words: Sequence[str], call: str | None, **fields: Any) -> Script:
        """Return a command with the value of --call: a number, a glob of names, or a word."""
        if call == LARGEST:
            return cls(tuple(words), is_largest=True, **fields)
        if call is not None and call.isdecimal():
            return cls(tuple(words), number=int(call), **fields)
        return cls(tuple(words), name=call, **fields)

    @property
    def is_chosen(self) -> bool:
        """Return whether the call was named, and not only described."""
        return self.name is not None or self.number is not None or self.is_largest

    @property
    def line(self) -> str:
        """Return the command as text."""
        return shlex.join(self.words)

    def child(
        self, folder: Path, server: str, what: str, watch: Watch, variables: Mapping[str, str]
    ) -> Child:
        """Start the command.

        Args:
            folder: for its files.
            server: module whose `answers` takes what is caught, and returns what takes requests.
            what: names the work in messages.
            watch: how it is watched.
            variables: its environment.

        Raises:
            UsageError: it starts several processes, or its calls would not be seen.
            NotCompiledError: it cannot be started.
        """
        require_one_process(self.words)
        require_seen(self.words)
        if shutil.which(self.words[0]) is None:
            hint = f"; this Python is {sys.executable}" if "python" in self.words[0] else ""
            if self.words[0].endswith(".py"):
                hint = f"; a file wants its Python: -- python {self.line}"
            raise NotCompiledError(f"no command {self.words[0]}{hint}")
        hooked = Path(__file__).absolute().with_name("hooked.py")
        site = folder / "site"
        site.mkdir(exist_ok=True)
        text = _SITE.format(hooked=str(hooked))
        (site / "sitecustomize.py").write_text(text, encoding="utf-8")
        plan = {**self._plan, "server": server, TEXTS: dict(self.texts)}
        (folder / _PLAN).write_text(json.dumps(plan), encoding="utf-8")
        places = [str(site), *filter(None, [variables.get("PYTHONPATH")])]
        environment = {
            **variables,
            "PYTHONPATH": os.pathsep.join(places),
            PLAN: str(folder / _PLAN),
            ROOT: str(Path(__file__).parents[2]),
        }
        return Child(self.words, folder, what, watch, environment, REQUESTS)

    def settled(self, folder: Path, watch: Watch, variables: Mapping[str, str]) -> Script:
        """Return the command with a call that is known by its name.

        For the largest that takes a gradient, each of them is executed, until one is made again or
        the command ends; also by a failure, such as for lack of memory.

        Raises:
            NoCallError: none takes a gradient.
            NotCompiledError: it cannot be started, or failed before the first of them.
            TooSlowError: the deadline has passed.
        """
        if not self.is_largest or self.name is not None:
            return self
        trial = replace(self, is_round=True)
        server = "bufdb.capture.catching"
        with trial.child(folder, server, f"a round of {self.line}", watch, variables) as child:
            until = "until one was made again"
            try:
                trial.first(child, {})
            except (NoCallError, NotCompiledError) as error:
                if not any(call.has_gradient for call in calls_of(child)):
                    raise
                is_end = isinstance(error, NoCallError)
                until = "to the command's end" if is_end else "until the command failed"
            calls = [call for call in calls_of(child) if call.has_gradient]
        return replace(at_same(self, largest(calls)), round_end=until)

    def first(self, child: Child, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to the first request, which the command is stopped for.

        Raises:
            NoCallError: the command ended before.
            NotCompiledError: it failed before, or the call could not be compiled.
        """
        try:
            return child.ask(request)
        except Died as died:
            if self.is_reached(calls := calls_of(child)):
                raise
            raise self._missed(child, died, calls) from None

    def is_reached(self, calls: Sequence[Call]) -> bool:
        """Return whether the last of some calls is the one that the command is stopped at."""
        return bool(calls) and is_chosen(self._plan, calls[-1])

    @property
    def _plan(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "number": self.number,
            "occurrence": self.occurrence,
            "is_to_end": self.is_to_end,
            "is_round": self.is_round,
            "fit": self.fit,
            "own": self.own.pattern,
        }

    def _missed(self, child: Child, died: Died, calls: Sequence[Call]) -> Exception:
        """Return why a command was not stopped at a call."""
        wanted = "a call that takes a gradient"
        if self.number is not None:
            wanted = f"call {self.number}"
        elif self.fit is not None:
            wanted = f"call {self.fit} of bufdb.fit"
        elif self.name is not None:
            which = f"call {self.occurrence}" if (self.occurrence or 1) > 1 else "a call"
            wanted = f"{which} of {quote(self.name)}"
        if died.ended != "its process ended with code 0":
            hint = child.watch.hint("\n".join(died.lines))
            if "No module named 'jax'" in "".join(died.lines[-1:]):
                hint = f"; bufdb itself runs in {sys.executable}"
            notes = "".join(f"; {note}" for note in child.known.get(NOTES, ()))
            before = "" if self.is_to_end else f" before {wanted}"
            message = f"{self.line}: {died.ended}{before}{hint}{notes}"
            return NotCompiledError(message, died.lines)
        if "python" not in child.known:
            return NoCallError(
                f"{self.line}: it ended without a Python that imports JAX; one is not seen with "
                "-I, -S, -E or another PYTHONPATH",
                calls,
            )
        names = [call.short_name for call in calls]
        shown = ", ".join([*dict.fromkeys(names)][:_SHOWN]) or "none"
        outside = (
            "" if self.is_chosen else "; a gradient that is taken outside of jit is not a call"
        )
        close = "" if self.name is None else did_you_mean(self.name.strip("*"), names)
        return NoCallError(
            f"{self.line}: it ended without {wanted}; jitted functions that it called: "
            f"{shown}{close}{outside}",
            calls,
        )


def calls_of(child: Child) -> list[Call]:
    """Return the calls that a command has reported, in their order."""
    rows: list[dict[str, Any]] = [row for key, row in child.known.items() if key.startswith(CALL)]
    calls = []
    for row in rows:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
        }
        calls.append(Call(**fields))
    return sorted(calls, key=lambda call: call.number)


def stopped_note(script: Script, child: Child, *, is_choice: bool = True) -> str:
    """Return at which call of how many a command was stopped, and how to take another."""
    call = calls_of(child)[-1]
    why = "" if script.is_chosen else ", the first that takes a gradient"
    if script.is_largest:
        until = script.round_end
        why = f", the largest that takes a gradient in one round of steps, executed {until}"
    place = call.call_place or call.function_place
    at = f" at {short(place)}" if place else ""
    waiting = [f"{name} ({short(place)})" for name, place in child.known.get(WAITING, ())]
    more = f"; jitted, but not called by then: {', '.join(waiting[:_SHOWN])}" if waiting else ""
    if is_choice and not script.is_chosen:
        more += (
            f"; later calls are not known: --call {LARGEST} runs one round of steps and takes the "
            f"largest{', --call NAME another' if waiting else ''}"
        )
    again = "in a second run " if script.is_largest else ""
    return (
        f"call {call.number} of {call.number} so far{why}: {call.name}{at}; {again}the command was "
        f"stopped there, and nothing after it has run{more}"
    )


def short(place: str) -> str:
    """Return FILE:LINE relative to the current folder if it is in it."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else place


def largest(calls: Sequence[Call]) -> Call:
    """Return the call with the largest arguments and results; the first of several."""
    return max(calls, key=lambda call: (call.argument_bytes + call.result_bytes, -call.number))


def at_call(script: Script, call: Call) -> Script:
    """Return a command that is stopped at a call that is known."""
    return replace(script, number=call.number, name=None, occurrence=None, is_to_end=False)


def at_same(script: Script, call: Call) -> Script:
    """Return a command that is stopped at the same call of another environment.

    The number may be another one there, as libraries make calls, too.
    """
    name = glob.escape(call.name)
    return replace(script, number=None, name=name, occurrence=call.occurrence, is_to_end=False)
