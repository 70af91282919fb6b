"""How far an ingest is, told to whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bufdb.ingest.plan import Job, size_of

Progress = Callable[[int, int], None]
"""Is given the bytes done and the bytes in all."""


class Told:
    """The bytes of the files that were dealt with: read, unchanged or skipped."""

    def __init__(self, jobs: Iterable[Job], progress: Progress | None) -> None:
        self.sizes = {job.module_id: size_of(job.files) for job in jobs}
        self.progress = progress
        self.done_bytes, self.total_bytes = 0, sum(self.sizes.values())

    def done(self, jobs: Iterable[Job]) -> None:
        """These are done."""
        self.done_bytes += sum(self.sizes[job.module_id] for job in jobs)
        if self.progress is not None:
            self.progress(self.done_bytes, self.total_bytes)

    def part_of(self, job: Job) -> Callable[[int], None] | None:
        """Takes the bytes of parts of a large module, which is not done before all of it is."""
        progress, size = self.progress, self.sizes[job.module_id]
        if progress is None:
            return None
        seen = 0

        def tell(part: int) -> None:
            nonlocal seen
            seen = min(seen + part, max(0, size - 1))
            progress(self.done_bytes + seen, self.total_bytes)

        return tell
