"""Limits of memory from a file, and whether a run keeps them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from bufdb.answers.opening import Open
from bufdb.database import runs
from bufdb.errors import DatabaseError, UsageError, did_you_mean, quote
from bufdb.query import figures
from bufdb.query.asked import ALL
from bufdb.query.figures import METRICS, MemoryFigures, Place
from bufdb.query.result import Result
from bufdb.query.sizes import UNIT, in_bytes
from bufdb.render import formats
from bufdb.render.text import markdown_escape

# -- Budget files: what limits they set ------------------------------------------------------------

_SIZE = re.compile(rf"([+-]?)\s*(\d+(?:\.\d+)?)\s*(%|{UNIT})", re.ASCII)
_LIMIT_HELP = "expected bytes such as 123456 or '16 GiB', or '+2%' or '+10 MiB' over a base run"
_KEYS = ("function", "metric", "limit", "memory_space", "color", "platform", "allow_new")


@dataclass(frozen=True)
class Limit:
    """A limit: so many bytes, or relative to the figure of a base run."""

    text: str
    amount: Fraction
    """Bytes; for a `%`, hundredths of the base's figure."""
    is_relative: bool = False
    is_percent: bool = False

    def bytes_for(self, base: int | None) -> int | None:
        """Return the limit in whole bytes, rounded down; None if relative without a base."""
        if not self.is_relative:
            return int(self.amount)
        if base is None:
            return None
        return int(base + (base * self.amount / 100 if self.is_percent else self.amount) // 1)


@dataclass(frozen=True)
class Budget:
    """One entry of a budget file."""

    function: str
    """Glob for function names; for the module where the function is not known."""
    metric: str
    limit: Limit
    color: int | str | None = None
    """Memory space: number, name or `all` (each space separately); None is the device's own."""
    platform: str | None = None
    allow_new: bool = False
    """Whether a module without a counterpart in the base run passes a relative limit."""
    where: str = ""
    """`file:line`."""

    @property
    def space(self) -> str:
        """The memory space in words."""
        if self.color is None:
            return "of the device"
        return f"color {self.color}" if isinstance(self.color, int) else self.color


@dataclass(frozen=True)
class BudgetFile:
    """A budget file."""

    budgets: tuple[Budget, ...]
    base: str | None
    """The base run that the file names."""


def parse_limit(value: Any) -> Limit:
    """Return the limit given by a number of bytes or text such as '16 GiB', '+2%', '+10 MiB'.

    Raises:
        ValueError: it is none of these; the message says what was expected.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(str(value), Fraction(value))
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{_LIMIT_HELP}, found {quote(_toml_text(value))}")
    sign, number, unit = match.groups()
    if unit == "%" and not sign:
        raise ValueError(f"expected a sign before a percentage, such as '+2%', found {value!r}")
    amount = Fraction(number) if unit == "%" else in_bytes(number, unit)
    return Limit(value, -amount if sign == "-" else amount, bool(sign), unit == "%")


def parse_color(value: Any) -> int | str | None:
    """Return a memory space from its number, its name or `all`; None for None.

    Raises:
        ValueError: it is none of these; the message says what was expected.
    """
    if isinstance(value, str) and value:
        return int(value) if value.isdecimal() else value
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"expected a number from 0, a name or all, found {_found(value)}")


def parse(text: str, path: str) -> BudgetFile:
    """Parse a budget file; `path` is for messages.

    Raises:
        UsageError: it is not TOML, or an entry is wrong; the message has file and line.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Python 3.14 reports the line separately, earlier versions only in the text.
        position = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = (position and position[1]) or str(text.count("\n") + 1)
        reason = str(error)[: position.start()] if position else str(error)
        raise UsageError(f"{path}:{line}: not TOML: {reason}") from error
    lines = _Lines(text, path)
    _check_keys(document, ("base", "budget"), lines, None)
    base = document.get("base")
    if base is not None and not isinstance(base, str):
        raise lines.error(None, "base", f"expected the name of a run, found {_found(base)}")
    entries = document.get("budget")
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(e, dict) for e in entries)
    ):
        raise lines.error(None, "budget", "expected entries under [[budget]], found none")
    return BudgetFile(tuple(_budget(e, n, lines) for n, e in enumerate(entries)), base)


def _budget(entry: dict[str, Any], number: int, lines: _Lines) -> Budget:
    _check_keys(entry, _KEYS, lines, number)
    for key in ("function", "limit"):
        if key not in entry:
            raise lines.error(number, None, f"expected a key {key!r} in this entry, found none")
    for key in ("function", "platform"):
        if key in entry and (not isinstance(entry[key], str) or not entry[key]):
            raise lines.error(number, key, f"expected text, found {_found(entry[key])}")
    metric = entry.get("metric", "need")
    if metric not in METRICS:
        raise lines.error(
            number, "metric", f"expected one of {', '.join(METRICS)}, found {_found(metric)}"
        )
    if "color" in entry and "memory_space" in entry:
        raise lines.error(number, "color", "expected memory_space or color, found both")
    key = "color" if "color" in entry else "memory_space"
    try:
        color = parse_color(entry.get(key))
    except ValueError as error:
        raise lines.error(number, key, str(error)) from error
    allow_new = entry.get("allow_new", False)
    if not isinstance(allow_new, bool):
        raise lines.error(number, "allow_new", f"expected true or false, found {_found(allow_new)}")
    try:
        limit = parse_limit(entry["limit"])
    except ValueError as error:
        raise lines.error(number, "limit", str(error)) from error
    return Budget(
        entry["function"],
        metric,
        limit,
        color,
        entry.get("platform"),
        allow_new,
        f"{lines.path}:{lines.line_of(number, None)}",
    )


def _check_keys(
    table: dict[str, Any], known: Sequence[str], lines: _Lines, number: int | None
) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known)
            raise lines.error(
                number, key, f"expected one of {', '.join(known)}, found {quote(key)}{hint}"
            )


class _Lines:
    """The lines of entries and keys in a file, which the TOML parser does not report."""

    _ENTRY = re.compile(r"\s*\[\[\s*(budget|\"budget\"|'budget')\s*\]\]")

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.entries = [n for n, line in enumerate(self.lines) if self._ENTRY.match(line)]

    def line_of(self, number: int | None, key: str | None) -> int:
        """Return the line of a key of an entry, or of the entry if the key is not found; from 1."""
        first, last = 0, len(self.lines)
        if number is None:
            last = self.entries[0] if self.entries else last
        elif number < len(self.entries):
            first = self.entries[number]
            last = [*self.entries, last][number + 1]
        if key is not None:
            word = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]")
            for n in range(first, last):
                if word.match(self.lines[n]):
                    return n + 1
        return first + 1

    def error(self, number: int | None, key: str | None, message: str) -> UsageError:
        name = f"{key}: " if key else ""
        return UsageError(f"{self.path}:{self.line_of(number, key)}: {name}{message}")


def _toml_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _found(value: Any) -> str:
    return quote(_toml_text(value))


# -- Judge figures against budgets -----------------------------------------------------------------
#
# Pure: no database access. Invariant: nothing passes unjudged. A budget that matches no module, an
# unknown figure and a dump that was not read in full each have a verdict of their own.

NONE: Mapping[Place, MemoryFigures] = MappingProxyType({})
"""No base run."""
OVER, NOT_JUDGED, WITHIN = "over", "not judged", "within"
STATUSES = (OVER, NOT_JUDGED, WITHIN)


@dataclass(frozen=True)
class Verdict:
    """Whether one module is within one budget."""

    status: str
    """One of STATUSES."""
    metric: str | None = None
    budget: Budget | None = None
    figure: MemoryFigures | None = None
    value: int | None = None
    base: int | None = None
    limit: int | None = None
    reason: str | None = None
    """Why it is not judged, or why it passes without a comparison."""

    @property
    def headroom(self) -> int | None:
        """Bytes left below the limit; negative if it is exceeded."""
        return None if self.limit is None or self.value is None else self.limit - self.value


def judge(
    budgets: Iterable[Budget],
    figures: Sequence[MemoryFigures],
    base: Mapping[Place, MemoryFigures] = NONE,
    unread: Sequence[str] = (),
) -> list[Verdict]:
    """Return verdicts on the modules of a run: over first, then what could not be judged.

    Args:
        budgets: the limits to check.
        figures: all modules of the run, one item per memory space.
        base: figures that relative limits start from, by the place of the figure compared.
        unread: findings about files of the run that belong to no module.
    """
    verdicts = [Verdict(NOT_JUDGED, reason=reason) for reason in unread]
    for budget in budgets:
        verdicts += _judge_budget(budget, figures, base)
    return sorted(verdicts, key=lambda verdict: STATUSES.index(verdict.status))


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 0 if all are within, 1 if one is over, else 4."""
    statuses = {verdict.status for verdict in verdicts}
    return 1 if OVER in statuses else 4 if NOT_JUDGED in statuses else 0


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return '1 over, 2 not judged, 3 within', without statuses whose count is 0."""
    counts = [(sum(v.status == status for v in verdicts), status) for status in STATUSES]
    return ", ".join(f"{count} {status}" for count, status in counts if count)


def _judge_budget(
    budget: Budget, figures: Sequence[MemoryFigures], base: Mapping[Place, MemoryFigures]
) -> list[Verdict]:
    named = [figure for figure in figures if _fits(budget, figure)]
    # A module without allocations has no memory space to match; its need is not known.
    chosen = [f for f in named if f.color is None or _in_space(budget, f)]
    if not any(figure.color is not None for figure in chosen) and len(chosen) < len(named):
        spaces = sorted({f.memory_space or f"color {f.color}" for f in named})
        known = ", ".join(spaces)
        reason = f"no memory space {budget.space} in the modules that match; there is {known}"
        return [Verdict(NOT_JUDGED, budget.metric, budget, reason=reason)]
    if not chosen:
        functions = sorted({figure.function for figure in figures})
        hint = did_you_mean(budget.function, functions)
        return [Verdict(NOT_JUDGED, budget.metric, budget, reason=f"fits no module{hint}")]
    others = base if budget.limit.is_relative else NONE
    order = sorted(chosen, key=lambda f: (f.function, f.module_key, f.color or 0))
    return [_judge_figure(budget, figure, others.get(figure.place)) for figure in order]


def _judge_figure(budget: Budget, figure: MemoryFigures, other: MemoryFigures | None) -> Verdict:
    metric = budget.metric
    value = figure.values[metric] if figure.color is not None else None
    base = None if other is None else other.values[metric]
    limit = budget.limit.bytes_for(base)
    reason: str | None = None
    status = NOT_JUDGED
    if figure.color is None or value is None:
        reason = f"{metric} is unknown: {figure.unknown_reason or 'the dump does not have it'}"
    elif budget.limit.is_relative and other is None:
        status = WITHIN if budget.allow_new else NOT_JUDGED
        reason = "not in the base run"
    elif limit is None:
        why = (other and other.unknown_reason) or "the dump does not have it"
        reason = f"{metric} of the base run is unknown: {why}"
    elif value > limit:
        status = OVER
    elif figure.problem_count or (other is not None and other.problem_count):
        run = "" if figure.problem_count else " of the base run"
        reason = f"part of the dump{run} was not understood; see 'bufdb query diagnostics'"
    else:
        status = WITHIN
    return Verdict(status, metric, budget, figure, value, base, limit, reason)


def _fits(budget: Budget, figure: MemoryFigures) -> bool:
    return fnmatchcase(figure.function, budget.function) and budget.platform in (
        None,
        figure.platform,
    )


def _in_space(budget: Budget, figure: MemoryFigures) -> bool:
    if budget.color is None:
        return figure.is_device_memory
    return budget.color in (ALL, figure.color, figure.memory_space)


# -- `budget` as an answer: a run against a file of limits, and its text ---------------------------

MOST_MODULES, MOST_LINES = 20, 3
"""Modules of a comment for a pull request whose growth is explained, and lines of each."""
_EVERY = 2**31


@dataclass(frozen=True)
class Judged:
    """The verdicts on a run."""

    run: str
    base: str | None
    """The base run, if there is one."""
    verdicts: list[Verdict]
    notes: tuple[str, ...] = ()

    def text(self, format_name: str, grown: Sequence[str] = ()) -> str:
        """Return a row for each verdict in a form of `bufdb.render.formats`.

        In Markdown a list with the sentences of `grown` follows.
        """
        text = formats.render(_result(self.verdicts), format_name)[0]
        if format_name != "markdown":
            return text
        against = f", base {markdown_escape(self.base)}" if self.base else ""
        run = f"run {markdown_escape(self.run)}{against}"
        lines = "".join(f"- {markdown_escape(line)}\n" for line in grown)
        more = f"\n{lines}" if lines else ""
        return f"**Memory budget: {summary(self.verdicts)}** ({run})\n\n{text}{more}"


def budget(opened: Open, file: Path, run: str | None = None, base: str | None = None) -> Judged:
    """Judge a run by the limits in a file.

    Args:
        opened: opens the database.
        file: a budget file.
        run: the run; None if there is one alone, the base aside.
        base: the run that relative limits start from; None for that of the file.

    Raises:
        UsageError: the file cannot be read or is wrong, or there is no such run.
        DatabaseError: the figures cannot be read.
    """
    try:
        content = parse(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}") from error
    relative = [one for one in content.budgets if one.limit.is_relative]
    is_wanted = base is not None or bool(relative)
    base = base or content.base
    if relative and base is None:
        raise UsageError(
            f"{relative[0].where}: limit {relative[0].limit.text!r} starts from a base run; "
            "name it with --base or, at the top of the file, base"
        )
    con = opened()
    try:
        run = _run_of(con, run, base)
        # A base that no limit starts from may be missing, as on a first run.
        if base is not None and not is_wanted and base not in runs.names(con):
            base = None
        if base is None:
            return Judged(run, None, _judged(con, content.budgets, run, NONE))
        runs.require(con, [base])
        judgements = _judged(con, content.budgets, run, figures.of_base(con, base, run))
    except duckdb.Error as error:
        # Exit code 1 would mean that a limit is exceeded.
        raise DatabaseError(f"cannot read the figures: {str(error).splitlines()[0]}") from error
    note = f"run {run} is its own base: no limit relative to it can be exceeded"
    return Judged(run, base, judgements, (note,) if run == base and relative else ())


def grown(opened: Open, judged: Judged) -> list[str]:
    """Return, for each judged module whose peak grew since the base run, what grew, by line.

    Without a base run there is a sentence on how to see that, if a limit is exceeded.
    """
    from bufdb.answers import diff, diff_text

    if judged.base is None:
        is_over = any(one.status == OVER for one in judged.verdicts)
        return ["which lines grew: --base RUN compares with another run"] if is_over else []
    compared = diff.diff(
        opened, judged.base, judged.run,
        top=_EVERY, most_places=_EVERY, by="source", color=ALL,
    )  # fmt: skip
    sentences = diff_text.grown(compared.comparison, MOST_LINES)
    places = dict.fromkeys(
        (one.figure.module_key, one.figure.color)
        for one in judged.verdicts
        if one.figure is not None
    )
    causes = [sentences[place] for place in places if place in sentences]
    rest = len(causes) - MOST_MODULES
    more = [f"{rest} more peaks grew: bufdb diff {judged.base} {judged.run}"] if rest > 0 else []
    return [*causes[:MOST_MODULES], *more]


def _run_of(con: duckdb.DuckDBPyConnection, run: str | None, base: str | None) -> str:
    if run is None:
        others = [name for name in runs.names(con) if name != base]
        if len(others) != 1:
            known = ", ".join(others) or "none"
            raise UsageError(f"which run? --run names it; there is {known}")
        run = others[0]
    runs.require(con, [run])
    return run


def _judged(
    con: duckdb.DuckDBPyConnection,
    budgets: Iterable[Budget],
    run: str,
    base: Mapping[Place, MemoryFigures],
) -> list[Verdict]:
    return judge(budgets, figures.of_run(con, run), base, figures.unread(con, run))


def _result(verdicts: Sequence[Verdict]) -> Result:
    columns = [
        ("status", "VARCHAR"),
        ("function_name", "VARCHAR"),
        ("metric", "VARCHAR"),
        ("memory_space", "VARCHAR"),
        ("value_bytes", "HUGEINT"),
        ("base_bytes", "HUGEINT"),
        ("limit_bytes", "HUGEINT"),
        ("headroom_bytes", "HUGEINT"),
        ("headroom_ratio", "DOUBLE"),
        ("module_key", "VARCHAR"),
        ("budget", "VARCHAR"),
        ("reason", "VARCHAR"),
    ]
    return Result(columns, [_row(verdict) for verdict in verdicts])


def _row(verdict: Verdict) -> tuple[object, ...]:
    budget, figure = verdict.budget, verdict.figure
    space = None
    if figure is not None and figure.color is not None:
        space = figure.memory_space or f"color {figure.color}"
    elif budget is not None:
        space = budget.space
    ratio = None
    if verdict.headroom is not None and verdict.limit:
        ratio = verdict.headroom / verdict.limit
    return (
        verdict.status,
        figure.function if figure else budget.function if budget else None,
        verdict.metric,
        space,
        verdict.value,
        verdict.base,
        verdict.limit,
        verdict.headroom,
        ratio,
        figure.module_key if figure else None,
        f"{budget.limit.text} ({budget.where})" if budget else None,
        verdict.reason,
    )
