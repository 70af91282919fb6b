"""Fit a function of a user's file in child processes, also over a value in its arguments.

Or a call of a user's command, also over a value in its words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bufdb.capture.runner import Watch
from bufdb.capture.script import Script
from bufdb.capture.simulated import Devices
from bufdb.errors import TooSlowError, UsageError
from bufdb.fitting.answer_text import Sizes
from bufdb.fitting.figures import need_of
from bufdb.fitting.fit import Fitting
from bufdb.fitting.plans import Answer, Plan, Program
from bufdb.fitting.question import Question
from bufdb.fitting.runs import run_name, store_runs
from bufdb.fitting.session import Apart
from bufdb.fitting.vary import of_plans
from bufdb.read.own import NOTHING_MORE, Own

FIRST_VALUE = 8
INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


@dataclass(frozen=True)
class Varied:
    """A value in the arguments, whose largest that fits is searched."""

    name: str
    """In braces in the text of the arguments."""
    start: int

    def label(self, value: int) -> str:
        """Return "b=24", or '' at the start: the part of a run's name."""
        return "" if value == self.start else f"{self.name}={value}"


def varied(vary: str, args: str, limit_bytes: int | None, script: Script | None = None) -> Varied:
    """Return what `--vary NAME` or `--vary NAME=START` names.

    Raises:
        UsageError: there is no such name in the arguments, no limit, or the start is no number.
    """
    name, _, start = vary.partition("=")
    if script is not None and not any(f"{{{name}}}" in word for word in script.words):
        raise UsageError(f"--vary {vary} wants {{{name}}} in the command, as in --batch {{{name}}}")
    if script is None and f"{{{name}}}" not in args:
        raise UsageError(f"--vary {vary} wants {{{name}}} in --args, such as 'args({{{name}}})'")
    if limit_bytes is None:
        raise UsageError(f"--vary {vary} wants a --limit")
    if start and not (start.isdecimal() and int(start)):
        raise UsageError(f"--vary wants NAME or NAME=START, START a number from 1 on; got {vary}")
    return Varied(name, int(start or FIRST_VALUE))


@dataclass(frozen=True)
class UserFunction:
    """A function of a user's file or a call of a command, and how its processes are watched."""

    spec: str
    """FILE.py:FUNCTION or package.module:FUNCTION; the text of a command."""
    args: str
    target: str | None = None
    gradients_only: bool = False
    watch: Watch = field(default_factory=Watch)
    varied: Varied | None = None
    script: Script | None = None
    own: Own = NOTHING_MORE
    devices: Devices = field(default_factory=Devices)

    def session(self, folder: Path, value: int = 0) -> Apart:
        """Return a session in a child, at a value of what is varied."""
        spec, args, script = self.spec, self.args, self.script
        if self.varied is not None:
            name, text = f"{{{self.varied.name}}}", str(value)
            args = args.replace(name, text)
            if script is not None:
                words = tuple(word.replace(name, text) for word in script.words)
                script = replace(script, words=words)
                spec = script.line
        how = self.gradients_only, self.watch, script, self.own, self.devices
        return Apart(spec, args, self.target, folder, *how)


def fitted(function: UserFunction, question: Question) -> tuple[Answer, Sizes | None]:
    """Search for plans; also for the largest value of what is varied, as written and by plans.

    Raises:
        UsageError: the request is wrong.
        NotCompiledError: the user's code or XLA gave up.
        TooSlowError: nothing was found within the time.
    """
    with tempfile.TemporaryDirectory(prefix="bufdb-") as name:
        folder = Path(name)
        start = 0 if function.varied is None else function.varied.start
        with function.session(folder, start) as session:
            answer = Fitting(session, question, folder).answer()
            own = *filter(None, [session.stopped]), *session.notes
            answer = replace(answer, notes=(*own, *answer.notes))
        if function.varied is None or answer.is_interrupted:
            return answer, None
        return answer, _sizes(function, function.varied, question, answer, folder)


def _sizes(
    function: UserFunction, varied: Varied, question: Question, answer: Answer, folder: Path
) -> Sizes:
    def run_at(value: int, rank: int | None) -> str:
        return run_name(question, rank, varied.label(value))

    def need_at(value: int, rank: int | None, plan: Callable[[Program], Plan]) -> int | None:
        with (
            tempfile.TemporaryDirectory(dir=folder) as place,
            function.session(Path(place), value) as session,
        ):
            program = session.program()
            dumped = session.compile(plan(program), f"{varied.name}={value}", is_full=True)
            made = {run_at(value, rank): dumped}
            store_runs(question, made, session.device, program.target)
            return need_of(dumped)

    return Sizes(varied.name, of_plans(answer, varied.start, need_at, run_at))


def exit_code(answer: Answer, sizes: Sizes | None) -> int:
    """Return 0 if something fits or no limit was set; else 124 or 130 if it ended before, or 1."""
    is_missed = (
        answer.limit_bytes is not None and not answer.fits_as_written and answer.best is None
    )
    if sizes is not None:
        is_missed = not any(one.value for one in sizes.largest)
    if not is_missed:
        return 0
    if answer.is_interrupted:
        return INTERRUPTED
    return 1 if answer.is_complete else TooSlowError.exit_code
