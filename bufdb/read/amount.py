"""Sizes as messages and logs print them: rounded, with how far off they may be.

Written by `tsl::strings::HumanReadableNumBytes` (`6.00MiB`) and by the TPU compiler (`512.00M`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = r"\d{1,15}(?:\.\d{1,3})?(?:[KMGTPE](?:iB|B)?|B)"
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?(?:([KMGTPE])(?:iB|B)?|B)")
LIMIT = 2**63


@dataclass(frozen=True)
class Amount:
    """Bytes that were printed rounded: the nearest to the text, and how far off they may be."""

    size_bytes: int
    slack_bytes: int
    """Half of the last digit; 0 where the text is exact."""

    def __add__(self, other: Amount) -> Amount:
        """Return both together."""
        return Amount(self.size_bytes + other.size_bytes, self.slack_bytes + other.slack_bytes)

    def within(self, other: Amount | None) -> Amount:
        """Return what both say of the same bytes; this one if they disagree."""
        if other is None:
            return self
        low = max(self.size_bytes - self.slack_bytes, other.size_bytes - other.slack_bytes)
        high = min(self.size_bytes + self.slack_bytes, other.size_bytes + other.slack_bytes)
        return self if low > high else Amount((low + high) // 2, (high - low + 1) // 2)

    def may_be(self, size_bytes: int) -> bool:
        """Return whether a size would be printed so."""
        return abs(size_bytes - self.size_bytes) <= self.slack_bytes


def amount_of(text: str) -> Amount | None:
    """Return the amount that a text gives; None if it gives none, or past 63 bits."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    whole, fraction, unit = match[1], match[2] or "", match[3]
    scale = 1024 ** ("KMGTPE".index(unit) + 1) if unit else 1
    digits = 10 ** len(fraction)
    size = (int(whole + fraction) * scale + digits // 2) // digits
    slack = -(-scale // (2 * digits)) if unit else 0
    return Amount(size, slack) if size + slack < LIMIT else None


def signed_amount_of(text: str) -> Amount | None:
    """Return the amount that a text gives, which may be below 0."""
    amount = amount_of(text.removeprefix("-"))
    if amount is None or not text.startswith("-"):
        return amount
    return Amount(-amount.size_bytes, amount.slack_bytes)
