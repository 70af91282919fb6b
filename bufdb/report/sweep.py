"""The end of a sweep as sentences: the curves through its runs, and the largest that fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bufdb.report.text import human_bytes
from bufdb.summary import sweep
from bufdb.summary.sweep import Curve

MOST = 12
"""Sentences of one kind about one label; what is left out is counted."""
MOST_NAMES = 4


def lines(
    found: Mapping[tuple[str, ...], Sequence[Curve]],
    functions: Collection[str],
    limit_bytes: int | None,
) -> list[str]:
    """What the curves say, label by label; of the curves those of `functions` alone."""
    said = []
    for labels, curves in found.items():
        fitting = {} if limit_bytes is None else sweep.largest(curves, limit_bytes)
        told = [item.binding for item in fitting.values()]
        kept = [c for c in curves if c.row["function_name"] in functions or c in told]
        # With two labels a curve stands once for each value of the second.
        fits = dict.fromkeys(_fit(curve) for curve in kept if curve.row["model"] is not None)
        said += _cut(list(fits))
        said += _cut(_without(labels, curves, limit_bytes))
        said += _cut(
            [
                f"largest {labels[0]} that fits {human_bytes(limit_bytes or 0)}: "
                f"{_ends(item.low, item.high)}{_where(others)}, by {_name(item.binding)}"
                for others, item in fitting.items()
            ]
        )
    return said


def _cut(texts: list[str]) -> list[str]:
    more = len(texts) - MOST
    return texts if more <= 0 else [*texts[:MOST], f"and {more} more of these"]


def _fit(curve: Curve) -> str:
    """One curve: 'peak of f (remat=full): 2.02 MiB + 3.13 MiB * batch, within 0.2%, …'."""
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
        sizes += f", {row['unknown_count']} more of unknown peak"
    where = f" ({row['other_labels']})" if row["other_labels"] else ""
    return f"peak of {_name(curve)}{where}: {text}, within {row['max_error_ratio']:.1%}, {sizes}"


def _term(factor: float, size: str) -> str:
    sign = "-" if factor < 0 else "+"
    return f" {sign} {human_bytes(round(abs(factor)))} * {size}"


def _without(labels: Sequence[str], curves: Sequence[Curve], limit_bytes: int | None) -> list[str]:
    """Which functions have no curve, or no forecast, and why: a largest says nothing of them."""
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
    return [f"{reason}: {_some(list(named))}" for reason, named in by_reason.items()]


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _name(curve: Curve) -> str:
    """The function; of several compilations which."""
    place = curve.row["compilation_place"]
    name = str(curve.row["function_name"])
    return name if place == 1 else f"{name}, compilation {place}"


def _where(others: str) -> str:
    return f" ({others})" if others else ""


def _ends(low: int, high: int) -> str:
    if high <= 0:
        return "none"
    return f"{low}" if low == high else f"{low} to {high}"
