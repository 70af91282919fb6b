"""How far an ingest is, told to whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bufdb.ingest.plan import Job

Progress = Callable[[int, int], None]
"""Is given the bytes done and the bytes in all."""


class Told:
    """The bytes of the files that were dealt with: read, unchanged or skipped."""

    def __init__(self, jobs: Iterable[Job], progress: Progress | None) -> None:
        self.sizes = {job.module_id: sum(job.sizes.values()) for job in jobs}
        self.progress = progress
        self.done_bytes, self.total_bytes = 0, sum(self.sizes.values())
        self.part_bytes = 0
        """Of the large module that is being read."""

    def done(self, ids: Iterable[int]) -> None:
        """These modules, by module_id, are done."""
        self.done_bytes += sum(self.sizes[module_id] for module_id in ids)
        self.part_bytes = 0
        if self.progress is not None:
            self.progress(self.done_bytes, self.total_bytes)

    def part(self, module_id: int, size: int) -> None:
        """So many bytes more of a large module were read, which is not done before all of it is."""
        self.part_bytes = min(self.part_bytes + size, max(0, self.sizes[module_id] - 1))
        if self.progress is not None:
            self.progress(self.done_bytes + self.part_bytes, self.total_bytes)
