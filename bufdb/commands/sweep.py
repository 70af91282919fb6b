"""`bufdb capture --sweep`: run a command with each combination of values, and compare the runs."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.answers.devices import Limits
from bufdb.capture import sweep
from bufdb.capture.sweep import Combination
from bufdb.commands import common
from bufdb.commands.captured import Captured, Dumps, capture, dump_folder, show_result
from bufdb.database import faults
from bufdb.errors import CommandError, UsageError
from bufdb.query.asked import glob
from bufdb.query.catalogue import Catalogue
from bufdb.query.result import Result
from bufdb.render.progress import duration
from bufdb.resources import query_folder

if TYPE_CHECKING:
    from bufdb.answers.summary import Overview
    from bufdb.query.result import Result

INTERRUPTED = 130
LABEL = "sweep"
"""Metadata that the runs of a sweep share: its name."""
_COLUMNS = {
    "exit_code": "BIGINT",
    "outcome": "VARCHAR",
    "function_name": "VARCHAR",
    "peak_bytes": "HUGEINT",
    "limit_ratio": "DOUBLE",
    "unknown_reason": "VARCHAR",
}
"""Columns of the table at the end, after run_name and the labels."""


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
    """See `common.own_globs`."""
    is_quiet: bool = False
    is_watched: bool = False
    """Whether each run writes down what its process holds."""
    limit_bytes: int | None = None

    def run_name(self, combination: Combination) -> str:
        """Return the sweep's name and the values: train-8-none."""
        return f"{self.name}-{combination.suffix}"


def plan(
    command_line: Sequence[str],
    texts: Sequence[str],
    labels: dict[str, str],
    name: str,
    own_globs: list[str] | None = None,
) -> Plan:
    """Return the runs that --sweep asks for.

    Raises:
        UsageError: it is not valid, or conflicts with the command or with --label.
    """
    values = sweep.parse(texts)
    if LABEL in labels:
        raise UsageError(f"--label {LABEL}: it holds the name of the sweep; see --run")
    for label in values:
        if label in labels:
            raise UsageError(f"label {label} is set by both --label and --sweep")
        if label in ("run_name", LABEL, *_COLUMNS):
            raise UsageError(f"--sweep {label}: the name is reserved; use another")
    combinations = sweep.combinations(command_line, values)
    return Plan(name, labels, values, combinations, command_line, own_globs)


def run(
    planned: Plan,
    db: str,
    keep_dumps: Path | None,
    limits: Limits,
    format_name: str,
    output: Path | None,
) -> int:
    """Run all combinations, show the results, and return the first exit code that is not 0.

    If a signal stopped the sweep, return that of the run that was stopped.
    """
    kept = None if keep_dumps is None else dump_folder(keep_dumps)
    said: set[str] = set()
    done: list[Captured] = []
    count, began = len(planned.combinations), time.monotonic()
    for number, combination in enumerate(planned.combinations, 1):
        pairs = " ".join(f"{label}={value}" for label, value in combination.values.items())
        if not planned.is_quiet:
            left = _left(number - 1, count, time.monotonic() - began)
            common.note(f"run {number} of {count}: {pairs}{left}")
        place = None if kept is None else kept / _folder_name(number, combination)
        done.append(_capture(planned, combination, db, place, said))
        if done[-1].is_stopped:
            common.note(f"stopped after {number} of {count} runs")
            break
    code = next((one.code for one in done if one.code), 0)
    try:
        _show(planned, done, db, limits, format_name, output)
    except Exception as error:  # raised again unless it is known to come from outside
        known = faults.as_known(error, db)
        if known is None or faults.is_interrupt(error):
            raise
        common.note(f"error: {known}")
        code = code or known.exit_code
    return done[-1].code or INTERRUPTED if done[-1].is_stopped else code


def _left(done: int, count: int, seconds: float) -> str:
    """Return the estimated time for the rest, after a first run and only on a terminal."""
    if not done or not common.is_terminal(sys.stderr):
        return ""
    return f" (about {duration(seconds / done * (count - done))} left)"


def _folder_name(number: int, combination: Combination) -> str:
    """Return a name for a run's dumps in which no value can escape the folder."""
    return f"{number}-" + re.sub(r"[^\w.=+-]", "_", combination.suffix)


def _capture(
    planned: Plan, combination: Combination, db: str, place: Path | None, said: set[str]
) -> Captured:
    labels = {**planned.labels, **combination.values}
    name, folder = planned.run_name(combination), dump_folder(place)
    metadata = {LABEL: planned.name}
    with Dumps(folder, place is not None, db, name, labels, metadata) as dumps:
        dumps.own_globs, dumps.is_quiet = planned.own_globs, planned.is_quiet
        dumps.is_watched, dumps.limit_bytes = planned.is_watched, planned.limit_bytes
        try:
            return capture(dumps, combination.command, said=said)
        except CommandError as error:  # another value may name a command that exists
            common.note(f"error: {error}")
            return Captured(error.exit_code, None, is_started=False)


def _show(
    planned: Plan,
    done: Sequence[Captured],
    db: str,
    limits: Limits,
    format_name: str,
    output: Path | None,
) -> None:
    """Show the table of peaks, the curves, and the largest value that fits."""
    from bufdb.answers import sweep as answer
    from bufdb.database import store

    made = zip(planned.combinations, done, strict=False)
    stored = [planned.run_name(combination) for combination, one in made if one.is_stored]
    if not stored:
        show_result(_table(planned, done, {}), None, format_name, output)
        return
    query = Catalogue([query_folder()]).find(answer.QUERY)
    globs = [glob(name) for name in stored]
    with store.open_readable(db, answer.sql_of(query), runs=globs) as con:
        peaks = answer.peaks(con, stored, *limits)
        known = [found.limit_bytes for found in peaks.values() if found.limit_bytes is not None]
        limit_bytes = known[0] if known else None
        labels = sweep.numeric_labels(planned.values)
        curves = answer.curves(con, query, labels, limit_bytes)
    show_result(_table(planned, done, peaks), None, format_name, output)
    if planned.is_watched:
        asked_runs = ["bufdb", "query", "process", "--db", db, "--run", f"{LABEL}={planned.name}"]
        common.note(f"{shlex.join(asked_runs)} has what each process held")
    functions = {found.peak["function_name"] for found in peaks.values() if found.peak is not None}
    proof = functools.partial(_proof, planned, db)
    for text in answer.lines(curves, functions, limit_bytes, proof):
        common.note(text)
    for asked in list(curves)[:1]:
        again = ["bufdb", "query", query.name, "--db", db, "--run", f"{LABEL}={planned.name}"]
        common.note(f"{shlex.join([*again, '-p', 'label', ','.join(asked)])} has the figures")


def _proof(planned: Plan, db: str, label: str, size: int, others: str) -> str:
    """Return the command that adds one size to the sweep."""
    words = ["bufdb", "capture", "--db", db, "--run", planned.name]
    for name, values in planned.values.items():
        held = (value for value in values if f"{name}={value}" in others.split(" "))
        words += ["--sweep", f"{name}={size if name == label else next(held, values[0])}"]
    for name, value in planned.labels.items():
        words += ["--label", f"{name}={value}"]
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
        found = peaks.get(name)
        peak = None if found is None else found.peak
        cells = (
            None if one is None else one.exit_code,
            "not run" if one is None else one.outcome,
            None if peak is None else peak["function_name"],
            None if peak is None else peak["peak_bytes"],
            None if found is None else found.limit_ratio,
            found.unknown[0]["unknown_reason"] if found is not None and found.unknown else None,
        )
        rows.append((name, *combination.values.values(), *cells))
    if all(found.limit_bytes is None for found in peaks.values()):
        place = [name for name, _ in columns].index("limit_ratio")
        columns.pop(place)
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    return Result(columns, rows)
