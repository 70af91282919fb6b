"""Run a command with each combination of values, and compare the runs.

    --sweep batch=8,16 --sweep remat=none,full -- python train.py --batch {batch} --remat {remat}

`{batch}` is replaced by the value of `batch`; write a literal brace twice. The combinations
are in the order of nested loops, the first label outermost.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.answers.devices import Limits
from bufdb.capture.runner import Relay, to_stderr
from bufdb.capture.simulated import Devices
from bufdb.errors import (
    BufdbError,
    CommandError,
    DatabaseError,
    UsageError,
    did_you_mean,
    quote,
)
from bufdb.query.catalogue import own as own_queries
from bufdb.query.parameters import glob
from bufdb.query.result import Result
from bufdb.recording.command import Captured, Dumps, capture, dump_folder
from bufdb.render.progress import duration

if TYPE_CHECKING:
    from bufdb.answers.summary import Overview
    from bufdb.ingest.plan import Progress

LABEL = "sweep"
"""Metadata that the runs of a sweep share: its name."""
INTERRUPTED = 130
_COLUMNS = {
    "exit_code": "BIGINT",
    "outcome": "VARCHAR",
    "function_name": "VARCHAR",
    "peak_bytes": "HUGEINT",
    "limit_ratio": "DOUBLE",
    "unknown_reason": "VARCHAR",
}
"""Columns of the table at the end, after run_name and the labels."""
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Combination:
    """One run of a sweep."""

    values: Mapping[str, str]
    """Value of each label of the sweep."""
    command: tuple[str, ...]
    suffix: str
    """Suffix of the run's name after that of the sweep: 8-none."""


def parse(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each label, from texts such as `batch=8,16,32`.

    Raises:
        UsageError: a text is not K=V1,V2…, or a label or a value is given twice.
    """
    sweep: dict[str, list[str]] = {}
    for text in texts:
        label, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not label or not equals or not all(listed):
            raise UsageError(f"--sweep wants K=V1,V2,…, got {quote(text)}")
        if label in sweep:
            raise UsageError(f"--sweep {label} is repeated; list all its values in one")
        twice = next((value for value in listed if listed.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"--sweep {label} has {quote(twice)} twice")
        sweep[label] = listed
    return sweep


def combinations(command: Sequence[str], sweep: Mapping[str, Sequence[str]]) -> list[Combination]:
    """Return every combination of the values, each with its command.

    Raises:
        UsageError: the command has a placeholder that is not a label of the sweep, lacks one of a
            label, or has a single brace; or two combinations would have the same name.
    """
    names = [name for word in command for name in _placeholders(word, sweep)]
    for label in sweep:
        if label not in names:
            raise UsageError(
                f"--sweep {label}: the command has no {{{label}}}, so its runs would not differ"
            )
    commands = []
    for values in itertools.product(*sweep.values()):
        labels = dict(zip(sweep, values, strict=True))
        words = tuple(_filled(word, labels) for word in command)
        commands.append(Combination(labels, words, "-".join(values)))
    suffixes = [combination.suffix for combination in commands]
    twice = next((suffix for suffix in suffixes if suffixes.count(suffix) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep: two runs would be named {quote(twice)}; change a value")
    return commands


def numeric_labels(sweep: Mapping[str, Sequence[str]]) -> list[str]:
    """Return labels that a curve may run over: several values, all of them numbers."""
    return [
        label for label, values in sweep.items() if len(values) > 1 and all(map(_is_number, values))
    ]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _placeholders(word: str, known: Iterable[str]) -> list[str]:
    """Return the names in braces; raise an error if one is unknown."""
    names = []
    for match in _BRACES.finditer(word):
        name = match[1]
        if name is None and len(match[0]) == 1:
            raise UsageError(f"a single brace in {quote(word)}; write a literal brace twice")
        if name is not None and name not in known:
            hint = did_you_mean(name, known) or "; write a literal brace twice: {{ }}"
            raise UsageError(f"no --sweep for {{{name}}} in {quote(word)}{hint}")
        if name is not None:
            names.append(name)
    return names


def _filled(word: str, values: Mapping[str, str]) -> str:
    """Return the word with names replaced by their values, and double braces by single ones."""
    return _BRACES.sub(lambda match: match[0][0] if match[1] is None else values[match[1]], word)


# -- The runs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep."""

    name: str
    labels: dict[str, str]
    """Labels of all runs."""
    values: dict[str, list[str]]
    """Values of each label of the sweep."""
    combinations: list[Combination]
    command_line: Sequence[str]
    """The command, with placeholders."""
    own_globs: list[str] | None = None
    """See `bufdb.ingest.plan.Request`."""
    db: str = ""
    is_watched: bool = False
    """Whether each run writes down what its process holds."""
    every_seconds: float | None = None
    """See `bufdb.recording.command.Dumps`."""
    has_holders: bool = False
    limits: Limits = (None, None)
    call: str | None = None
    """Which call of the command is compiled instead of running it; None runs it."""
    devices: Devices = field(default_factory=Devices)
    """What the program of such a call has of devices."""
    relay: Relay = to_stderr
    """Receives what such a command prints."""
    is_quiet: bool = False
    is_timed: bool = False
    """Whether the time that is left is noted before each run."""
    note: Callable[[str], None] = lambda text: None
    """Receives what the user should know, a line or more at a time."""
    observed: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    """Yields what receives the progress of an ingest."""

    def run_name(self, combination: Combination) -> str:
        """Return the sweep's name and the values: train-8-none."""
        return f"{self.name}-{combination.suffix}"


def plan(
    command_line: Sequence[str],
    texts: Sequence[str],
    labels: dict[str, str],
    name: str,
    **fields: Any,
) -> Plan:
    """Return the runs that --sweep asks for; `fields` are further ones of `Plan`.

    Raises:
        UsageError: it is not valid, or conflicts with the command or with --label.
    """
    values = parse(texts)
    if LABEL in labels:
        raise UsageError(f"--label {LABEL}: it holds the name of the sweep; see --run")
    for label in values:
        if label in labels:
            raise UsageError(f"label {label} is set by both --label and --sweep")
        if label in ("run_name", LABEL, *_COLUMNS):
            raise UsageError(f"--sweep {label}: the name is reserved; use another")
    return Plan(name, labels, values, combinations(command_line, values), command_line, **fields)


def run(planned: Plan, keep_dumps: Path | None) -> tuple[list[Captured], int]:
    """Run all combinations; return what came of each, and the first exit code that is not 0.

    If a signal stopped the sweep, the code is that of the run that was stopped.

    Raises:
        UsageError: the first run ended without the call.
    """
    kept = None if keep_dumps is None else dump_folder(keep_dumps)
    noted: set[str] = set()
    done: list[Captured] = []
    count, began = len(planned.combinations), time.monotonic()
    for number, combination in enumerate(planned.combinations, 1):
        pairs = " ".join(f"{label}={value}" for label, value in combination.values.items())
        if not planned.is_quiet:
            seconds = time.monotonic() - began
            left = time_left(number - 1, count, seconds) if planned.is_timed else ""
            planned.note(f"run {number} of {count}: {pairs}{left}")
        place = None if kept is None else kept / _folder_name(number, combination)
        if planned.call is None:
            done.append(_capture(planned, combination, place, noted))
        else:
            done.append(_of_call(planned, planned.call, combination, is_first=not done))
        if done[-1].is_stopped:
            planned.note(f"stopped after {number} of {count} runs")
            return done, done[-1].code or INTERRUPTED
    return done, next((one.code for one in done if one.code), 0)


def time_left(done: int, count: int, seconds: float) -> str:
    """Return the estimated time for the rest, after a first run."""
    return f" (about {duration(seconds / done * (count - done))} left)" if done else ""


def _folder_name(number: int, combination: Combination) -> str:
    """Return a name for a run's dumps in which no value can escape the folder."""
    return f"{number}-" + re.sub(r"[^\w.=+-]", "_", combination.suffix)


def _of_call(planned: Plan, call: str, combination: Combination, *, is_first: bool) -> Captured:
    """Store the compilation of a call that a command makes, where it is stopped."""
    from bufdb.answers.opening import open_readable
    from bufdb.capture.script import Script
    from bufdb.read.own import parse_own
    from bufdb.recording.function import Function, explained

    script = Script.chosen(combination.command, call, own=parse_own(planned.own_globs or ()))
    function = Function(
        script.line,
        "",
        planned.db,
        functools.partial(open_readable, planned.db),
        planned.run_name(combination),
        {**planned.labels, **combination.values},
        own_globs=planned.own_globs,
        note=planned.note,
        relay=planned.relay,
        script=script,
        devices=planned.devices,
        metadata={LABEL: planned.name, "command": script.line},
    )
    try:
        done = explained(function, None)
    except KeyboardInterrupt:
        return Captured(INTERRUPTED, None, is_stopped=True)
    except (DatabaseError, UsageError) as error:
        if is_first or isinstance(error, DatabaseError):
            raise
        planned.note(f"error: {error}")
        return Captured(error.exit_code, None)
    except BufdbError as error:  # another value may do
        planned.note("\n".join([*getattr(error, "lines", ()), f"error: {error}"]))
        return Captured(error.exit_code, None)
    if done.refusal is not None:
        planned.note(f"XLA gave up: {done.refusal}")
    return Captured(done.exit_code, 0)


def _capture(
    planned: Plan, combination: Combination, place: Path | None, noted: set[str]
) -> Captured:
    with Dumps(
        dump_folder(place),
        place is not None,
        planned.db,
        planned.run_name(combination),
        {**planned.labels, **combination.values},
        {LABEL: planned.name},
        own_globs=planned.own_globs,
        is_quiet=planned.is_quiet,
        is_watched=planned.is_watched,
        every_seconds=planned.every_seconds,
        has_holders=planned.has_holders,
        limit_bytes=planned.limits[0],
        note=planned.note,
        observed=planned.observed,
    ) as dumps:
        try:
            return capture(dumps, combination.command, noted=noted)
        except CommandError as error:  # another value may name a command that exists
            planned.note(f"error: {error}")
            return Captured(error.exit_code, None, is_started=False)


# -- The answer ------------------------------------------------------------------------------------


def compared(planned: Plan, done: Sequence[Captured]) -> tuple[Result, list[str]]:
    """Return the table of peaks, and in words the curves and the largest value that fits.

    Raises:
        DatabaseError: the database cannot be read.
    """
    from bufdb.answers import sweep as answer
    from bufdb.database import store

    made = zip(planned.combinations, done, strict=False)
    stored = [planned.run_name(combination) for combination, one in made if one.is_stored]
    if not stored:
        return _table(planned, done, {}), []
    query = own_queries().find(answer.QUERY)
    globs = [glob(name) for name in stored]
    with store.open_readable(planned.db, answer.sql_of(query), runs=globs) as con:
        peaks = answer.peaks(con, stored, *planned.limits)
        known = [
            overview.limit_bytes for overview in peaks.values() if overview.limit_bytes is not None
        ]
        limit_bytes = known[0] if known else None
        labels = numeric_labels(planned.values)
        curves = answer.curves(con, query, labels, limit_bytes)
    runs = ["--db", planned.db, "--run", f"{LABEL}={planned.name}"]
    notes = []
    if planned.is_watched:
        again = ["bufdb", "query", "process", *runs]
        notes.append(f"{shlex.join(again)} has what each process held")
    functions = {
        overview.peak["function_name"] for overview in peaks.values() if overview.peak is not None
    }
    notes += answer.lines(curves, functions, limit_bytes, functools.partial(_proof, planned))
    for labels_of_curve in list(curves)[:1]:
        again = ["bufdb", "query", query.name, *runs, "-p", "label", ",".join(labels_of_curve)]
        notes.append(f"{shlex.join(again)} has the figures")
    return _table(planned, done, peaks), notes


def _proof(planned: Plan, label: str, size: int, others: str) -> str:
    """Return the command that adds one size to the sweep."""
    words = ["bufdb", "capture", "--db", planned.db, "--run", planned.name]
    for name, values in planned.values.items():
        held = (value for value in values if f"{name}={value}" in others.split(" "))
        words += ["--sweep", f"{name}={size if name == label else next(held, values[0])}"]
    for name, value in planned.labels.items():
        words += ["--label", f"{name}={value}"]
    words += [] if planned.call is None else ["--call", planned.call]
    words += planned.devices.words
    return shlex.join([*words, "--", *planned.command_line])


def _table(planned: Plan, done: Sequence[Captured], peaks: Mapping[str, Overview]) -> Result:
    """Return a row for each combination, in order; those that were not run too."""
    columns = [
        ("run_name", "VARCHAR"),
        *((label, "VARCHAR") for label in planned.values),
        *_COLUMNS.items(),
    ]
    rows = []
    for combination, one in itertools.zip_longest(planned.combinations, done):
        name = planned.run_name(combination)
        overview = peaks.get(name)
        peak = None if overview is None else overview.peak
        cells = (
            None if one is None else one.exit_code,
            "not run" if one is None else one.outcome,
            None if peak is None else peak["function_name"],
            None if peak is None else peak["peak_bytes"],
            None if overview is None else overview.limit_ratio,
            overview.unknown[0]["unknown_reason"]
            if overview is not None and overview.unknown
            else None,
        )
        rows.append((name, *combination.values.values(), *cells))
    if all(overview.limit_bytes is None for overview in peaks.values()):
        place = [name for name, _ in columns].index("limit_ratio")
        columns.pop(place)
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    return Result(columns, rows)
