"""What plans cost beyond the function as written, and which of them are shown, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bufdb.errors import UsageError
from bufdb.fitting.plans import Compiled, PlanResult

PRODUCTS = "products"
ORDERS = (PRODUCTS, "bytes", "cycles")
"""Costs that rank the plans."""
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


def _cost(row: PlanResult, order: str) -> float:
    cost = {
        "bytes": row.extra_accessed_ratio,
        "cycles": row.extra_cycles_ratio,
    }.get(order, row.extra_work_ratio)
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
        parts = sum(int(key.partition("=")[2]) for key in row.plan.extra)
        work = _cost(row, PRODUCTS)
        return need, work, _cost(row, order), row.offloaded_bytes, len(row.steps) > 0, parts

    def edits(row: PlanResult) -> int:
        changed = [line for line in (row.patch or "").splitlines() if line[:1] == "+"]
        return len(changed) + len(row.steps)

    least = _UNKNOWN if written.need_bytes is None else written.need_bytes
    as_written = (least, 0.0, 0.0, 0, False, 0), -1, -1
    known = [(respects(row), edits(row), at) for at, row in enumerate(rows)]
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
