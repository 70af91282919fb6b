"""Limits of memory from a file, and whether a run keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bufdb.answers.budget_file import Budget, BudgetFile, fits, in_space, learned, parse
from bufdb.answers.opening import Open
from bufdb.database import runs
from bufdb.database.engine import duckdb
from bufdb.errors import DatabaseError, UsageError, did_you_mean
from bufdb.query import execute, figures
from bufdb.query.catalogue import own as own_queries
from bufdb.query.figures import MemoryFigures, Place
from bufdb.query.parameters import ALL
from bufdb.query.result import Result
from bufdb.render import formats
from bufdb.render.text import human_bytes, markdown_escape

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
    named = [figure for figure in figures if fits(budget, figure)]
    # A module without allocations has no memory space to match; its need is not known.
    chosen = [f for f in named if f.color is None or in_space(budget, f)]
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


# -- `budget` as an answer: a run against a file of limits, and its text ---------------------------

MOST_RUNS = 40
"""Runs of a picture of the peaks of a function, the last ones."""
_SERIES, _LEVELS = "series", "▁▂▃▄▅▆▇█"
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

    def text(self, format_name: str, sentences: Sequence[str] = ()) -> str:
        """Return a row for each verdict in a form of `bufdb.render.formats`.

        In Markdown a list with the sentences of `grown` and `trends` follows.
        """
        text = formats.render(_result(self.verdicts), format_name)[0]
        if format_name != "markdown":
            return text
        against = f", base {markdown_escape(self.base)}" if self.base else ""
        run = f"run {markdown_escape(self.run)}{against}"
        lines = "".join(f"- {markdown_escape(line)}\n" for line in sentences)
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
    _, content = _read(file)
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


def _read(file: Path) -> tuple[str, BudgetFile]:
    """Return the text of a budget file, and what it says.

    Raises:
        UsageError: it cannot be read or is wrong.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}") from error
    return text, parse(text, str(file))


def learn(opened: Open, file: Path, run: str | None = None) -> tuple[str, list[str]]:
    """Return the text of a budget file with limits from a run, and notes; see `learned`.

    Args:
        opened: opens the database.
        file: a budget file, which need not exist.
        run: the run; None if there is one alone.

    Raises:
        UsageError: the file cannot be read or is wrong, or there is no such run.
    """
    text, content = _read(file) if file.exists() else ("", None)
    con = opened()
    run = _run_of(con, run, None if content is None else content.base)
    return learned(content, text, figures.of_run(con, run), run)


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


def trends(opened: Open, judged: Judged) -> list[str]:
    """Return the peaks of each judged function over the runs in order of time, as small pictures.

    A function whose peak has not changed, or is unknown in one of them, has none.
    """
    series = own_queries().find(_SERIES)
    result = execute.execute_query(
        opened(series.sql), series, {"top_n": _EVERY, "fixed": None, "color": ALL}
    )
    peaks: dict[tuple[object, ...], list[int | None]] = {}
    names = [name for name, _ in result.columns]
    for cells in result.rows:
        row = dict(zip(names, cells, strict=True))
        key = row["function_name"], row["platform"], row["color"], row["compilation_place"]
        peaks.setdefault(key, []).append(row["peak_bytes"])
    wanted = {
        (one.figure.function, one.figure.platform, one.figure.color)
        for one in judged.verdicts
        if one.figure is not None
    }
    known = [
        (function, [size for size in sizes[-MOST_RUNS:] if size is not None])
        for (function, platform, color, _), sizes in peaks.items()
        if (function, platform, color) in wanted and None not in sizes[-MOST_RUNS:]
    ]
    return [
        f"{function}: peak {_picture(sizes)} over {len(sizes)} runs"
        for function, sizes in known
        if len({*sizes}) > 1
    ][:MOST_MODULES]


def _picture(sizes: Sequence[int]) -> str:
    """Return sizes as a row of bars between their least and their most, with first and last."""
    least, most = min(sizes), max(sizes)
    top = len(_LEVELS) - 1
    bars = "".join(_LEVELS[(size - least) * top // max(1, most - least)] for size in sizes)
    return f"{human_bytes(sizes[0])} {bars} {human_bytes(sizes[-1])}"


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
