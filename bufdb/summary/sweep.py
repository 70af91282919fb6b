"""What the runs of a sweep need: the highest peak of each, and the curves through all of them.

Invariant: a figure is a cell of a view or of the saved query `scaling`; here one is only chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bufdb.query import execute
from bufdb.summary import overview
from bufdb.summary.overview import DEFAULT_COLOR, Overview, Row

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery, Value

QUERY = "scaling"
ALL_ROWS = 10**6


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

    def largest(self, limit_bytes: int) -> tuple[int, int] | None:
        """The range of what fits of the first label, 0 for nothing; None if it is not known.

        What does not grow has no largest: only where it exceeds the limit anyway nothing fits.
        """
        if self.row["model"] == "constant":
            return (0, 0) if self.row["largest_bytes"] > limit_bytes else None
        column = "largest_size" if len(self.labels) == 1 else "largest_first"
        low, high = self.row[f"low_{column}"], self.row[f"high_{column}"]
        return None if low is None else (max(0, low), max(0, high))


@dataclass(frozen=True)
class Largest:
    """What fits of a label in all functions together."""

    low: int
    high: int
    binding: Curve
    """That of the function that leaves least."""


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
        values: dict[str, Value] = {"color": DEFAULT_COLOR, "top_n": ALL_ROWS}
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
        before = fitting.get(curve.others)
        if before is None:
            fitting[curve.others] = Largest(*ends, curve)
        else:
            binding = curve if ends < (before.low, before.high) else before.binding
            low, high = min(before.low, ends[0]), min(before.high, ends[1])
            fitting[curve.others] = Largest(low, high, binding)
    return fitting
