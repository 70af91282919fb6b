"""What it takes to leave stacks out of what a scan saves, each by itself and sets of them.

What several stacks need has the same number with each, so that a set is a union: it counts once,
and what one of the set computes is not kept for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bufdb.errors import listed

_MOST_NAMED = 3
_LIMIT = 2**63


@dataclass(frozen=True)
class Kept:
    """A value of another line that is kept instead, in all slices."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class Needs:
    """What leaving one stack out takes."""

    form: str
    """wrap or policy, as peak_savings.saving_form."""
    is_gone: bool
    """Whether it goes; a result that other lines read stays."""
    kept: Mapping[int, Kept]
    again: Mapping[int, int | None]
    """Operations, in all slices, of what is computed again; None where shapes do not say."""
    all_again: Mapping[int, int | None]
    """The same where the operands of other lines are computed again, too."""


@dataclass(frozen=True)
class Together:
    """What leaving a set of stacks out takes."""

    form: str
    kept_bytes: int
    kept_name: str | None
    """The lines, the one with the most bytes first."""
    low_operation_count: int | None
    operation_count: int | None


def together(needs: Sequence[Needs]) -> Together:
    """Return the union of what some stacks need; there is at least one."""
    gone = [one for one in needs if one.is_gone]
    again = {number for one in gone for number in one.again}
    kept: dict[int, Kept] = {}
    for one in gone:
        for number, value in one.kept.items():
            if number not in again:
                kept[number] = max(value, kept.get(number, value), key=lambda of: of.size_bytes)
    return Together(
        needs[0].form,
        sum(value.size_bytes for value in kept.values()),
        _named(kept.values()),
        operation_count(one.again for one in gone),
        operation_count(one.all_again for one in needs),
    )


def operation_count(parts: Iterable[Mapping[int, int | None]]) -> int | None:
    """Return the sum over a union; None if any part is not known."""
    union: dict[int, int | None] = {}
    for part in parts:
        union |= part
    counts = [count for count in union.values() if count is not None]
    total = sum(counts)
    return total if len(counts) == len(union) and total < _LIMIT else None


def _named(kept: Iterable[Kept]) -> str | None:
    sizes: dict[str, int] = {}
    for value in kept:
        sizes[value.name] = sizes.get(value.name, 0) + value.size_bytes
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    return listed(names, _MOST_NAMED) or None
