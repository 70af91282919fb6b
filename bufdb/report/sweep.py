"""The end of a sweep as sentences: the curves through its runs, and the largest that fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from bufdb.report.text import human_bytes
from bufdb.summary import sweep
from bufdb.summary.sweep import Curve, Largest

Proof = Callable[[str, int, str], str]
"""The command that compiles a value of a label, with what else it holds for."""

MOST = 12
"""Sentences of one kind about one label; what is left out is counted."""
MOST_NAMES = 4


def lines(
    found: Mapping[tuple[str, ...], Sequence[Curve]],
    functions: Collection[str],
    limit_bytes: int | None,
    proof: Proof | None = None,
) -> list[str]:
    """What the curves say, label by label; of the curves those of `functions` alone.

    With `proof` the first guess of each label is followed by the command that proves it.
    """
    said = []
    for labels, curves in found.items():
        fitting = {} if limit_bytes is None else sweep.largest(curves, limit_bytes)
        told = [item.binding for item in fitting.values()]
        kept = [c for c in curves if c.row["function_name"] in functions or c in told]
        # With two labels a curve stands once for each value of the second.
        fits = dict.fromkeys(_fit(curve) for curve in kept if curve.row["model"] is not None)
        said += _cut(list(fits))
        said += _cut(_without(labels, curves, limit_bytes))
        head = f"largest {labels[0]} that fits {human_bytes(limit_bytes or 0)}: "
        said += _cut([head + _largest(item, others) for others, item in fitting.items()])
        guess = next(((others, i) for others, i in fitting.items() if i.is_guess), None)
        if proof is not None and guess is not None and len(labels) == 1:
            said.append(f"to prove it: {proof(labels[0], _tried(guess[1]), guess[0])}")
    return said


def _largest(item: Largest, others: str) -> str:
    """The range, what decides it, and how sure it is."""
    text = f"{_ends(item.low, item.high)}{_where(others)}, by {_name(item.binding)}"
    if item.measured:
        text += f"; {item.measured:g} is sure, for it was compiled"
    if item.is_guess:
        labels, size = item.binding.labels, f"{2 * item.binding.row['max_size']:g}"
        where = size if len(labels) == 1 else f"{' * '.join(labels)} = {size}"
        text += f"; beyond {where} it is a guess"
    return text


def _tried(item: Largest) -> int:
    """The value to compile next: the low end, if that is more than what was compiled."""
    return item.low if item.high is None or item.low > (item.measured or 0) else item.high


def _cut(texts: list[str]) -> list[str]:
    more = len(texts) - MOST
    return texts if more <= 0 else [*texts[:MOST], f"and {more} more of these"]


def _fit(curve: Curve) -> str:
    """One curve: 'need of f (remat=full): 2.02 MiB + 3.13 MiB * batch, within 0.2%, …'."""
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


def _ends(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} or more"
    if high <= 0:
        return "none"
    return f"{low}" if low == high else f"{low} to {high}"
