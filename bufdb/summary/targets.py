"""One function compiled for several targets: one row for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

from bufdb.query.result import Result
from bufdb.summary.overview import Overview

COLUMNS = [
    ("target", "VARCHAR"),
    ("device", "VARCHAR"),
    ("outcome", "VARCHAR"),
    ("need_bytes", "HUGEINT"),
    ("peak_bytes", "HUGEINT"),
    ("limit_bytes", "BIGINT"),
    ("limit_ratio", "DOUBLE"),
    ("held_bytes", "HUGEINT"),
    ("source", "VARCHAR"),
    ("run_name", "VARCHAR"),
    ("unknown_reason", "VARCHAR"),
]
"""outcome: compiled, too large (for the limit or the compiler) or not compiled; figures of what is
not compiled are those of a plan that XLA had made before it gave up.
need_bytes: memory_figures; limit_ratio is of it.
held_bytes, source: the line that holds most of the peak."""
_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory|exceeds available", re.IGNORECASE)
NEED = "SELECT need_bytes FROM memory_figures WHERE module_id = ? AND color = ?"


@dataclass(frozen=True)
class Outcome:
    """What came of one target."""

    target: str
    device: str | None
    """As JAX calls it; None if nothing was compiled."""
    run_name: str | None = None
    found: Overview | None = None
    need_bytes: int | None = None
    refusal: str | None = None
    """What XLA said where it planned the memory and then gave up."""
    failure: str | None = None
    """Why nothing was compiled."""

    @property
    def limit_ratio(self) -> float | None:
        """The need as share of the limit; None if either is unknown."""
        limit = None if self.found is None else self.found.limit_bytes
        if self.need_bytes is None or not limit:
            return None
        return self.need_bytes / limit

    @property
    def is_too_large(self) -> bool:
        """Whether it needs more than there is, by the limit or by what XLA said."""
        is_refused = self.refusal is not None and _OF_MEMORY.search(self.refusal) is not None
        return is_refused or (self.limit_ratio or 0.0) > 1

    @property
    def exit_code(self) -> int:
        """1 if it is too large, or XLA gave up for another reason; else 0."""
        return int(self.is_too_large or self.refusal is not None)

    @property
    def word(self) -> str:
        """The outcome column."""
        if self.is_too_large:
            return "too large"
        return "not compiled" if self.found is None or self.refusal is not None else "compiled"


def need_of(con: duckdb.DuckDBPyConnection, found: Overview) -> int | None:
    """What XLA reserves for the function with the highest peak [bytes]; None if it is unknown."""
    if found.peak is None:
        return None
    row = con.execute(NEED, [found.peak["module_id"], found.peak["color"]]).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def table(outcomes: Sequence[Outcome]) -> Result:
    """One row for each target, in their order."""
    return Result(list(COLUMNS), [_row(one) for one in outcomes])


def _row(one: Outcome) -> tuple[object, ...]:
    found = one.found
    peak = {} if found is None or found.peak is None else found.peak
    lines = [] if found is None else found.parts.get("lines", [])
    line = lines[0] if lines else {}
    reason = one.failure or one.refusal
    if reason is None and found is not None and found.unknown:
        reason = found.unknown[0]["unknown_reason"]
    return (
        one.target,
        one.device,
        one.word,
        one.need_bytes,
        peak.get("peak_bytes"),
        None if found is None else found.limit_bytes,
        one.limit_ratio,
        line.get("held_bytes"),
        line.get("source"),
        one.run_name,
        reason,
    )
