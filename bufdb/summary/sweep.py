"""What the runs of a sweep need: the highest peak of each, and the curves through all of them.

Invariant: a figure is a cell of a view or of the saved query `scaling`; here one is only chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bufdb.query import execute
from bufdb.summary import overview
from bufdb.summary.overview import Overview, Row

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery, Value

QUERY = "scaling"
ALL_ROWS = 10**6

Ends = tuple[int, int | None]
"""Of a range; None for one without a high end."""


@dataclass(frozen=True)
class Curve:
    """A row of the query `scaling`, which may have no curve."""

    labels: tuple[str, ...]
    """The label that the curve goes over, or the two whose product it does."""
    row: Row

    @property
    def others(self) -> str:
        """What it holds for: the value of the second of two labels, and the other labels."""
        second = self.row["second_size"]
        given = [] if second is None else [f"{self.labels[1]}={second:g}"]
        return " ".join([*given, *filter(None, [self.row["other_labels"]])])

    def no_curve_reason(self) -> str | None:
        """Why there is no curve; None if there is one."""
        if self.row["model"] is not None:
            return None
        return str(self.row["no_fit_reason"] or self.row["unknown_reason"])

    def largest(self, limit_bytes: int) -> Ends | None:
        """The range of what fits of the first label, 0 for nothing; None if it is not known.

        What does not grow has no largest: only where it exceeds the limit anyway nothing fits.
        """
        if self.row["model"] == "constant":
            return (0, 0) if self.row["largest_bytes"] > limit_bytes else None
        column = "largest_size" if len(self.labels) == 1 else "largest_first"
        low, high = self.row[f"low_{column}"], self.row[f"high_{column}"]
        return None if low is None else (max(0, low), None if high is None else max(0, high))


@dataclass(frozen=True)
class Largest:
    """What fits of a label in all functions together."""

    low: int
    high: int | None
    """None if there may be no largest."""
    binding: Curve
    """That of the function that leaves least."""
    measured: float | None = None
    """What fits for sure, for it was compiled; None if nothing did or with two labels."""

    @property
    def is_guess(self) -> bool:
        """Whether it is far outside the points."""
        return self.binding.row["guess_reason"] is not None


def sql_of(query: SavedQuery) -> str:
    """All SQL that is executed here, from which `open_readable` sees which views it needs."""
    return f"{overview.sql_of({})}\n{query.sql}"


def peaks(
    con: duckdb.DuckDBPyConnection,
    runs: Sequence[str],
    limit_bytes: int | None,
    limit_name: str | None,
) -> dict[str, Overview]:
    """The highest peak of each run, without the parts that say what holds it."""
    return {
        run: overview.overview(con, {}, {"run": overview.glob(run)}, limit_bytes, limit_name)
        for run in runs
    }


def curves(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    labels: Sequence[str],
    limit_bytes: int | None,
) -> dict[tuple[str, ...], list[Curve]]:
    """Rows of the query `scaling` over each label, and over the product of each two of them.

    Where no product of two labels makes a curve they are left out: each alone says more.
    """
    found = {}
    for asked in [*((label,) for label in labels), *itertools.combinations(labels, 2)]:
        values: dict[str, Value] = {"top_n": ALL_ROWS}
        values |= {"label": ",".join(asked), "budget": limit_bytes}
        result = execute.execute_query(con, query, values)
        names = [name for name, _ in result.columns]
        rows = [Curve(asked, dict(zip(names, row, strict=True))) for row in result.rows]
        if len(asked) == 1 or any(curve.row["model"] == "product" for curve in rows):
            found[asked] = rows
    return found


def largest(found: Sequence[Curve], limit_bytes: int) -> dict[str, Largest]:
    """What fits of the first label, by what else it holds for.

    All functions have to fit, so the least of each end counts; functions without a range do not.
    """
    fitting: dict[str, Largest] = {}
    for curve in found:
        ends = curve.largest(limit_bytes)
        if ends is None:
            continue
        measured = curve.row["measured_largest_size"] if len(curve.labels) == 1 else None
        here = Largest(*ends, curve, measured)
        before = fitting.get(curve.others)
        fitting[curve.others] = here if before is None else _both(before, here)
    return fitting


def _both(one: Largest, other: Largest) -> Largest:
    """What fits where both have to."""

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
