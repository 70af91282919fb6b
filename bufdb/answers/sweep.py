"""The end of a sweep: the peaks of its combinations, the curves through them, and their text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bufdb.answers import summary
from bufdb.answers.summary import Overview, Row
from bufdb.errors import listed
from bufdb.query import execute
from bufdb.query.parameters import glob
from bufdb.render.text import human_bytes

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery, Value


# -- What the runs of a sweep need: the highest peak of each, and the curves through all of them ---
#
# Invariant: a figure is a cell of a view or of the saved query `scaling`; here one is only chosen.

QUERY = "scaling"
ALL_ROWS = 10**6

Ends = tuple[int, int | None]
"""Low and high end of a range; the high end None if it is open."""


@dataclass(frozen=True)
class Curve:
    """A row of the query `scaling`; it may have no curve."""

    labels: tuple[str, ...]
    """The label that the curve runs over, or the two whose product it runs over."""
    row: Row

    @property
    def others(self) -> str:
        """What the curve applies to: the value of a second label, and the other labels."""
        second = self.row["second_size"]
        second_label = [] if second is None else [f"{self.labels[1]}={second:g}"]
        return " ".join([*second_label, *filter(None, [self.row["other_labels"]])])

    def no_curve_reason(self) -> str | None:
        """Return the reason why there is no curve; None if there is one."""
        if self.row["model"] is not None:
            return None
        return str(self.row["no_fit_reason"] or self.row["unknown_reason"])

    def largest(self, limit_bytes: int) -> Ends | None:
        """Return the range of the first label that fits, 0 for nothing; None if not known.

        A constant curve has no largest: nothing fits if it exceeds the limit, else any value may.
        """
        if self.row["model"] == "constant":
            return (0, 0) if self.row["largest_bytes"] > limit_bytes else None
        column = "largest_size" if len(self.labels) == 1 else "largest_first"
        low, high = self.row[f"low_{column}"], self.row[f"high_{column}"]
        return None if low is None else (max(0, low), None if high is None else max(0, high))


@dataclass(frozen=True)
class Largest:
    """The largest value of a label that fits for all functions together."""

    low: int
    high: int | None
    """None if there may be no upper end."""
    binding: Curve
    """The curve of the most restrictive function."""
    measured: float | None = None
    """The largest compiled value that fits; None if none does, or with two labels."""

    @property
    def is_guess(self) -> bool:
        """Whether it is far outside the measured points."""
        return self.binding.row["guess_reason"] is not None


def sql_of(query: SavedQuery) -> str:
    """Return all SQL executed here; `open_readable` derives the views it needs."""
    return f"{summary.sql_of({})}\n{query.sql}"


def peaks(
    con: duckdb.DuckDBPyConnection,
    runs: Sequence[str],
    limit_bytes: int | None,
    limit_name: str | None,
) -> dict[str, Overview]:
    """Return the highest peak of each run, without the parts that break it down."""
    return {
        run: summary.overview(con, {}, {"run": glob(run)}, limit_bytes, limit_name) for run in runs
    }


def curves(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    labels: Sequence[str],
    limit_bytes: int | None,
) -> dict[tuple[str, ...], list[Curve]]:
    """Return the rows of `scaling` over each label, and over the product of each two labels.

    Products that make no curve are left out: the labels by themselves are more useful.
    """
    by_function = {}
    for combination in [*((label,) for label in labels), *itertools.combinations(labels, 2)]:
        values: dict[str, Value] = {"top_n": ALL_ROWS}
        values |= {"label": ",".join(combination), "budget": limit_bytes}
        result = execute.execute_query(con, query, values)
        names = [name for name, _ in result.columns]
        rows = [Curve(combination, dict(zip(names, row, strict=True))) for row in result.rows]
        if len(combination) == 1 or any(curve.row["model"] == "product" for curve in rows):
            by_function[combination] = rows
    return by_function


def largest(of_function: Sequence[Curve], limit_bytes: int) -> dict[str, Largest]:
    """Return the largest that fits of the first label, by the other labels it applies to.

    All functions have to fit, so the minimum of each end counts; those without a range do not.
    """
    fitting: dict[str, Largest] = {}
    for curve in of_function:
        ends = curve.largest(limit_bytes)
        if ends is None:
            continue
        measured = curve.row["measured_largest_size"] if len(curve.labels) == 1 else None
        here = Largest(*ends, curve, measured)
        before = fitting.get(curve.others)
        fitting[curve.others] = here if before is None else _both(before, here)
    return fitting


def _both(one: Largest, other: Largest) -> Largest:
    """Return the largest value that fits for both."""

    def order(item: Largest) -> tuple[int, float]:
        return item.low, math.inf if item.high is None else item.high

    highs = [item.high for item in (one, other) if item.high is not None]
    sizes = (one.measured, other.measured)
    return Largest(
        min(one.low, other.low),
        min(highs, default=None),
        min(one, other, key=order).binding,
        None if None in sizes else min(filter(None, sizes), default=0),
    )


# -- The end of a sweep as sentences: the curves through its runs, and the largest that fits -------

Proof = Callable[[str, int, str], str]
"""Returns the command that compiles a value of a label, given the other labels."""

MOST = 12
"""Maximum sentences of one kind about one label; the rest is counted."""
MOST_NAMES = 4


def lines(
    curves_by_labels: Mapping[tuple[str, ...], Sequence[Curve]],
    functions: Collection[str],
    limit_bytes: int | None,
    proof: Proof | None = None,
) -> list[str]:
    """Describe the curves, label by label; of the curves only those of `functions`.

    With `proof`, the first guess of each label is followed by the command to verify it.
    """
    texts = []
    for labels, curves in curves_by_labels.items():
        fitting = {} if limit_bytes is None else largest(curves, limit_bytes)
        named = [item.binding for item in fitting.values()]
        kept = [c for c in curves if c.row["function_name"] in functions or c in named]
        # With two labels a curve occurs once for each value of the second.
        fits = dict.fromkeys(_fit(curve) for curve in kept if curve.row["model"] is not None)
        texts += _cut(list(fits))
        texts += _cut(_without(labels, curves, limit_bytes))
        head = f"largest {labels[0]} that fits {human_bytes(limit_bytes or 0)}: "
        texts += _cut([head + _largest(item, others) for others, item in fitting.items()])
        guess = next(((others, i) for others, i in fitting.items() if i.is_guess), None)
        if proof is not None and guess is not None and len(labels) == 1:
            texts.append(f"to verify: {proof(labels[0], _tried(guess[1]), guess[0])}")
    return texts


def _largest(item: Largest, others: str) -> str:
    """Return the range, the function that decides it, and how certain it is."""
    text = f"{_ends(item.low, item.high)}{_where(others)}, by {_name(item.binding)}"
    if item.measured:
        text += f"; {item.measured:g} is sure: it was compiled"
    if item.is_guess:
        labels, size = item.binding.labels, f"{2 * item.binding.row['max_size']:g}"
        where = size if len(labels) == 1 else f"{' * '.join(labels)} = {size}"
        text += f"; beyond {where} it is a guess"
    return text


def _tried(item: Largest) -> int:
    """Return the value to compile next: the low end if above what was compiled, else the high."""
    return item.low if item.high is None or item.low > (item.measured or 0) else item.high


def _cut(texts: list[str]) -> list[str]:
    more = len(texts) - MOST
    return texts if more <= 0 else [*texts[:MOST], f"and {more} more of these"]


def _fit(curve: Curve) -> str:
    """Describe one curve: 'need of f (remat=full): 2.02 MiB + 3.13 MiB * batch, within 0.2%, …'."""
    row, size = curve.row, " * ".join(curve.labels)
    text = human_bytes(row["fixed_bytes"])
    if row["model"] == "constant":
        text += f" at every {size}"
    else:
        text += _term(row["slope_bytes"], size)
    if row["model"] == "quadratic":
        text += _term(row["square_factor"], f"{size}^2")
    sizes = f"from {row['size_count']} sizes, {row['min_size']:g} to {row['max_size']:g}"
    if row["unknown_count"]:
        sizes += f", {row['unknown_count']} more of unknown need"
    where = f" ({row['other_labels']})" if row["other_labels"] else ""
    return f"need of {_name(curve)}{where}: {text}, within {row['max_error_ratio']:.1%}, {sizes}"


def _term(factor: float, size: str) -> str:
    sign = "-" if factor < 0 else "+"
    return f" {sign} {human_bytes(round(abs(factor)))} * {size}"


def _without(labels: Sequence[str], curves: Sequence[Curve], limit_bytes: int | None) -> list[str]:
    """Return which functions have no curve or forecast, and why; no largest covers them."""
    by_reason: dict[str, dict[str, None]] = {}
    for curve in curves:
        reason = curve.no_curve_reason()
        if reason is not None:
            reason = f"no curve over {' * '.join(labels)}: {reason}"
        elif curve.row["model"] == "constant" or limit_bytes is None:
            continue
        elif curve.largest(limit_bytes) is None:
            reason = f"no largest {labels[0]}: without one of the sizes the curve does not grow"
        if reason is not None:
            named = f"{_name(curve)}{_where(curve.others)}"
            by_reason.setdefault(reason, {})[named] = None
    return [f"{reason}: {listed(list(named), MOST_NAMES)}" for reason, named in by_reason.items()]


def _name(curve: Curve) -> str:
    """Return the function, with the number of the compilation beyond the first."""
    place = curve.row["compilation_place"]
    name = str(curve.row["function_name"])
    return name if place == 1 else f"{name}, compilation {place}"


def _where(others: str) -> str:
    return f" ({others})" if others else ""


def _ends(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} or more"
    if high <= 0:
        return "none"
    return f"{low}" if low == high else f"{low} to {high}"
