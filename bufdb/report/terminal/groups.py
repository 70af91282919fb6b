"""What buffers are coloured by: the largest groups at the chosen instant, and the others.

Invariant: what is held throughout, the groups and the others add up to the bytes at any instant.
"""

from __future__ import annotations

from bufdb.report.terminal.paint import FIXED, LETTERS, OTHER
from bufdb.summary.picture import Column, Picture

UNKNOWN = "(temp)"
"""Name of what has none, as saved queries have it."""


class Groups:
    """Inks by group; they keep them over the whole program."""

    def __init__(self, picture: Picture) -> None:
        self.fixed_bytes = picture.subject.fixed_bytes or 0
        sizes: dict[str, int] = {}
        for part in picture.instant.parts:
            name = part.group or UNKNOWN
            sizes[name] = sizes.get(name, 0) + part.end_bytes - part.begin_bytes
        self.names = sorted(sizes, key=lambda name: (-sizes[name], name))
        self.inks = dict(zip(self.names, LETTERS, strict=False))

    def ink(self, group: str | None) -> str:
        """The ink of a group."""
        return self.inks.get(group or UNKNOWN, OTHER)

    def bytes_of(self, column: Column) -> list[tuple[str, int]]:
        """Inks with their bytes at the instant of a column, from below; those without left out."""
        sizes = dict.fromkeys((FIXED, *LETTERS, OTHER), 0)
        sizes[FIXED] = self.fixed_bytes
        for part in column.parts:
            sizes[self.ink(part.group)] += part.end_bytes - part.begin_bytes
        return [(ink, size) for ink, size in sizes.items() if size]
