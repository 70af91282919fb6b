"""What reads the groups of an ingest, and the reader that is this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from bufdb.ingest.work import Group, Store


class Reader(Protocol):
    """Reads groups in order."""

    count: int
    """Number of the processes that read."""

    def begin(self, groups: Iterator[Group]) -> None:
        """Take groups, some ahead of what is asked for."""

    def read(self, group: Group, sink: Store) -> None:
        """Give a sink what is found in the next of the groups, which is this one."""

    def end(self) -> None:
        """End reading: no more groups follow."""


class Here:
    """Reads in this process."""

    count = 1

    def begin(self, groups: Iterator[Group]) -> None:
        """Read nothing ahead."""

    def read(self, group: Group, sink: Store) -> None:
        """Give a sink what is found in a group."""
        # 50 ms, which a process that only stores need not spend.
        from bufdb.ingest import group as groups_of_modules

        groups_of_modules.read(group, sink)

    def end(self) -> None:
        """End nothing."""
