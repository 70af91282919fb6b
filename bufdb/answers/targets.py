"""One function compiled for several targets: one row for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bufdb.answers.summary import Overview
from bufdb.query.result import Result

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
"""outcome: compiled, too large (for the limit or the compiler) or not compiled; if not compiled,
the figures are from the plan that XLA had made before it gave up.
need_bytes: from memory_figures; limit_ratio is based on it.
held_bytes, source: the line that holds most of the peak."""
_OF_MEMORY = r"(?i)RESOURCE_EXHAUSTED|out of memory|exceeds available"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one target."""

    target: str
    device: str | None
    """As JAX calls it; None if nothing was compiled."""
    run_name: str | None = None
    overview: Overview | None = None
    refusal: str | None = None
    """XLA's message if it planned the memory and then gave up."""
    failure: str | None = None
    """Why nothing was compiled."""

    @property
    def need_bytes(self) -> int | None:
        """What XLA reserves for the function with the highest peak; None if unknown."""
        if self.overview is None or self.overview.peak is None:
            return None
        need_bytes: int | None = self.overview.peak["need_bytes"]
        return need_bytes

    @property
    def limit_ratio(self) -> float | None:
        """The need as a share of the limit; None if either is unknown."""
        limit = None if self.overview is None else self.overview.limit_bytes
        if self.need_bytes is None or not limit:
            return None
        return self.need_bytes / limit

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiled it, however much memory it needs."""
        return self.overview is not None and self.refusal is None

    @property
    def is_too_large(self) -> bool:
        """Whether it needs more memory than there is, by the limit or by XLA's message."""
        is_refused = self.refusal is not None and re.search(_OF_MEMORY, self.refusal) is not None
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
        return "compiled" if self.is_compiled else "not compiled"


def table(outcomes: Sequence[Outcome]) -> Result:
    """Return one row for each target, in their order."""
    return Result(list(COLUMNS), [_row(one) for one in outcomes])


def _row(one: Outcome) -> tuple[object, ...]:
    answer = one.overview
    peak = {} if answer is None or answer.peak is None else answer.peak
    lines = [] if answer is None else answer.parts.get("lines", [])
    line = lines[0] if lines else {}
    reason = one.failure or one.refusal
    if reason is None and answer is not None and answer.unknown:
        reason = answer.unknown[0]["unknown_reason"]
    return (
        one.target,
        one.device,
        one.word,
        one.need_bytes,
        peak.get("peak_bytes"),
        None if answer is None else answer.limit_bytes,
        one.limit_ratio,
        line.get("held_bytes"),
        line.get("source"),
        one.run_name,
        reason,
    )
