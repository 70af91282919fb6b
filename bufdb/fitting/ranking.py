"""What plans cost beyond the function as written, and which of them are shown, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bufdb.errors import UsageError
from bufdb.fitting.plans import Compiled, PlanResult

PRODUCTS = "products"
COSTS = {
    PRODUCTS: "extra_work_ratio",
    "bytes": "extra_accessed_ratio",
    "cycles": "extra_cycles_ratio",
}
"""Costs that rank the plans, with the field of each."""
ORDERS = tuple(COSTS)
SAME = 0.0005
"""Share of all products that is no difference."""
ALIKE = 0.005
"""Share of the bytes read and written that is no difference."""
_UNKNOWN = float("inf")


def order_of(word: str) -> str:
    """Return the cost that a word names.

    Raises:
        UsageError: it is none of `ORDERS`.
    """
    if word not in ORDERS:
        raise UsageError(
            f"expected {', '.join(ORDERS[:-1])} or {ORDERS[-1]} as order, got {word!r}"
        )
    return word


def require_order(order: str, written: Compiled, target: str | None) -> None:
    """Raise an error where the function as written has no figure to rank by.

    Raises:
        UsageError: it has none; with the reason.
    """
    where = f" for {target}" if target is not None else ""
    if order == "cycles" and written.estimated_cycles is None:
        raise UsageError(
            f"the compiler{where} has no estimate of cycles to rank by (that for TPU has); "
            "use --order products or bytes"
        )
    if order == "bytes" and written.accessed_bytes is None:
        why = written.accessed_unknown_reason or "its dump has no HLO text"
        raise UsageError(
            f"the bytes that the function reads and writes are unknown: {why}; use --order products"
        )


def beyond(compiled: Compiled | None, written: Compiled) -> dict[str, Any]:
    """Return the fields of a row on what its compilation costs; each is None if unknown."""
    if compiled is None:
        return {}
    return {
        "accessed_bytes": compiled.accessed_bytes,
        "extra_accessed_ratio": _beyond(compiled.accessed_bytes, written.accessed_bytes),
        "estimated_cycles": compiled.estimated_cycles,
        "extra_cycles_ratio": _beyond(compiled.estimated_cycles, written.estimated_cycles),
    }


def _beyond(count: int | None, written: int | None) -> float | None:
    return None if count is None or not written else count / written - 1


def ranked(rows: Sequence[PlanResult], order: str) -> list[PlanResult]:
    """Return rows that are in the order of their products in that of another cost."""
    return list(rows) if order == PRODUCTS else sorted(rows, key=lambda row: _cost(row, order))


def settled(rows: Sequence[PlanResult], order: str = PRODUCTS) -> list[PlanResult]:
    """Return rows, of those that fit and cost the same products one: what products do not see.

    That is the one of the fewest bytes read and written; of those that are alike in these, too, the
    one of the least need. Rows of other costs in time, as `undominated` has them, are no tie.
    """
    if order != PRODUCTS:
        return list(rows)
    ties: list[list[PlanResult]] = []
    for row in sorted(rows, key=lambda row: _cost(row, PRODUCTS)):
        is_tied = row.fits and row.is_compiled and not row.is_broken
        own = (tie for tie in ties if _is_same(tie[0], row)) if is_tied else ()
        tie = next(iter(own), None)
        if tie is not None:
            tie.append(row)
        elif is_tied:
            ties.append([row])
    lost: list[PlanResult] = []
    for tie in ties:
        least = min((row.accessed_bytes or _UNKNOWN) for row in tie) * (1 + ALIKE)
        few = [row for row in tie if (row.accessed_bytes or _UNKNOWN) <= least]
        best = min(few, key=lambda row: (row.need_bytes or 0, _edits(row)))
        lost += [row for row in tie if row is not best]
    return [row for row in rows if not any(row is one for one in lost)]


def _is_same(one: PlanResult, other: PlanResult) -> bool:
    """Return whether two plans cost the same, as far as traces know."""
    is_near = abs(_cost(one, PRODUCTS) - _cost(other, PRODUCTS)) <= SAME
    return is_near and _others(one) == _others(other)


def _others(row: PlanResult) -> tuple[int, bool, int]:
    """Return what a plan costs besides products: bytes to the host, steps, parts of a batch."""
    parts = sum(int(key.partition("=")[2]) for key in row.plan.extra)
    return row.offloaded_bytes, len(row.steps) > 0, parts


def _edits(row: PlanResult) -> int:
    changed = [line for line in (row.patch or "").splitlines() if line[:1] == "+"]
    return len(changed) + len(row.steps)


def cheaper_by_hand(
    rows: Sequence[PlanResult], best: PlanResult | None, order: str = PRODUCTS
) -> int | None:
    """Return the rank of the first plan with a step by hand that costs less than the best."""
    if best is None or best.steps:
        return None
    most = _cost(best, order) - SAME
    fitting = (row for row in rows if row.fits and row.is_compiled and not row.is_broken)
    return next((row.rank for row in fitting if row.steps and _cost(row, order) < most), None)


def _cost(row: PlanResult, order: str) -> float:
    cost: float | None = getattr(row, COSTS[order])
    return _UNKNOWN if cost is None else cost


def undominated(
    rows: Sequence[PlanResult], written: Compiled, order: str = PRODUCTS
) -> list[PlanResult]:
    """Return the rows without those that a compiled one, or the function as written, beats.

    Beaten is what is better in no respect and worse in one: need, work of products, the cost that
    ranks, bytes that go to host memory, whether a step is to be done by hand, and parts of a batch,
    which cost time that products do not count. Of rows that are equal in all of these that with the
    fewest edits stays, then the first. A plan whose patch fails beats none.
    """

    def respects(row: PlanResult) -> tuple[float, ...]:
        need = _UNKNOWN if row.need_bytes is None else row.need_bytes
        return need, _cost(row, PRODUCTS), _cost(row, order), *_others(row)

    # What XLA gave up does not fit, whatever it needs.
    need = None if written.refusal is not None else written.need_bytes
    least = _UNKNOWN if need is None else need
    as_written = (least, 0.0, 0.0, 0, False, 0), -1, -1
    known = [(respects(row), _edits(row), at) for at, row in enumerate(rows)]
    kept = []
    for own, row in zip(known, rows, strict=True):
        # An estimate proves nothing of what is compiled.
        others = [
            other
            for other, rival in zip(known, rows, strict=True)
            if (rival.is_compiled or not row.is_compiled) and not rival.is_broken
        ]
        others.append(as_written)
        is_beaten = any(
            other < own and all(a <= b for a, b in zip(other[0], own[0], strict=True))
            for other in others
        )
        if not is_beaten:
            kept.append(row)
    return kept
