"""Dumps into a dataset by the workers of a cluster: one task per group of modules.

This process finds the modules, plans the groups, stores the rows of runs and reports what was done;
workers read and store modules (`bufdb.spark.part`), the largest groups first. A task that is lost
is done again elsewhere and stores the same objects.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bufdb.database import memory
from bufdb.dataset import dump_ingest as dataset
from bufdb.dataset import layout
from bufdb.dataset.storage import Folder, Storage, storage_of
from bufdb.dumps.discover import Source
from bufdb.dumps.files import BLOCK_BYTES, ModuleFiles
from bufdb.dumps.remote import Object
from bufdb.errors import BufdbError
from bufdb.ingest import group as groups_of_modules
from bufdb.ingest.plan import Job, PlannedRun, Progress, Request, Summary, plan
from bufdb.ingest.work import Group, Sink
from bufdb.render.notes import merged
from bufdb.spark.part import Outcome, Part, Target, is_gone

GROUP_BYTES = 4 << 20
"""Text of small modules in a task, less where that gives each worker fewer than four tasks."""
_LEAST_GROUP_BYTES = 256 << 10
_TASKS_PER_SLOT = 4
_WAVE_BYTES = 32 << 20
_WATCH_S = 1.0
_WATCH_RATIO = 20
"""A dataset of 100,000 objects takes seconds to list, which is not done all the time."""
_SHARED = "dumps are on a disk that all share, under the same name, or at a URL such as s3://"


class Scatter(Protocol):
    """A cluster: the only thing here that knows an engine."""

    slots: int
    """Approximate number of tasks that run at a time."""

    def pickled(self, part: Part) -> bytes:
        """Return a part for a worker, including what it takes to read a URL."""

    def check(self, target: Target, paths: Sequence[str]) -> list[str]:
        """Return which of these files a worker does not see; fail if it cannot store parts."""

    def store(self, parts: Sequence[bytes], watch: Callable[[], None] | None) -> Iterable[bytes]:
        """Return the pickled outcomes of parts, in order, all stored; call `watch` often."""


def ingest(scatter: Scatter, url: str, paths: Sequence[Source], **options: Any) -> Summary:
    """Read dumps and store them in the dataset at a folder or URL.

    Options and rows are those of `bufdb.dataset.dump_ingest.ingest`; `memory_limit` is each
    worker's.

    Raises:
        UsageError: a path does not exist or holds no dump.
        DatabaseError: the dataset cannot be read, or is of another schema version.
        BufdbError: workers do not see the dumps or the dataset, or cannot work.
    """
    began = time.perf_counter()
    request = Request(**options)
    planned = plan(paths, request.run)
    place = storage_of(url)
    if isinstance(place, Folder):
        url = place.root  # workers have working directories of their own
    with _mark(place) as mark:
        target = Target(url, mark, request.memory_limit or memory.ingest_memory())
        _require_dumps(scatter, target, planned)
        total = sum(sum(job.sizes.values()) for one in planned.values() for job in one.jobs)
        share = total // (_TASKS_PER_SLOT * scatter.slots)
        gathered = Gathered(scatter, target, place, request.progress)
        block_bytes = max(_LEAST_GROUP_BYTES, min(GROUP_BYTES, share))
        summary = dataset.store_planned(
            url,
            planned,
            replace(request, progress=None, block_bytes=block_bytes),
            elsewhere=gathered,
            file_format="parquet",  # which is what the workers write
        )
        gathered.require_seen()
    summary.seconds = time.perf_counter() - began
    summary.notes = merged(summary.notes)
    return summary


class Gathered:
    """Groups that workers store, and what they report of them (`bufdb.dataset.Elsewhere`)."""

    count = 1
    """The size of groups already accounts for the number of workers."""

    def __init__(
        self, scatter: Scatter, target: Target, place: Storage, progress: Progress | None
    ) -> None:
        self.scatter, self.target, self.progress = scatter, target, progress
        self.watched = Watched(place, target.mark, {})
        self.parts: dict[tuple[int, ...], tuple[int, bytes]] = {}
        """By module_ids of the group: bytes of text, and the part."""
        self.outcomes: dict[tuple[int, ...], bytes] = {}
        self.not_seen: list[str] = []
        """Files that are here and not where they were to be read."""

    def take(self, groups: Iterable[Group], day: str, versions: Mapping[int, int]) -> None:
        """Take groups for the workers, except those that only this process can read."""
        for group in groups:
            if not _is_portable(group):
                continue
            ids = _ids(group)
            before = {key: versions[key] for key in ids if key in versions}
            sizes = {job.module_id: sum(job.sizes.values()) for job in group.jobs}
            part = self.scatter.pickled(Part(self.target, _absolute(group), day, before))
            self.parts[ids] = sum(sizes.values()), part
            self.watched.sizes.update(sizes)

    def finish(self) -> None:
        """Let workers read and store everything, the largest first."""
        order = sorted(self.parts, key=lambda ids: self.parts[ids][0], reverse=True)
        if self.progress is not None:
            self.watched.begin()
        watch = partial(self.watched.tell, self.progress)
        for some in _waves(order, lambda ids: len(self.parts[ids][1])):
            parts = [self.parts.pop(ids)[1] for ids in some]
            self.outcomes.update(zip(some, self.scatter.store(parts, watch), strict=True))

    def begin(self, groups: Iterator[Group]) -> None:
        """Do nothing: everything is read."""

    def read(self, group: Group, sink: Sink) -> None:
        """Report to a sink what became of a group, as if it were read now."""
        outcome = self.outcomes.pop(_ids(group), None)
        if outcome is None:
            groups_of_modules.read(replace(group, block_bytes=BLOCK_BYTES), sink)
            return
        result: Outcome = pickle.loads(outcome)
        for word, arguments, named in result.events:
            if word in ("unreadable", "lost") and is_gone(arguments[1]):
                path = arguments[1].filename
                if path is not None and Path(path).exists():
                    self.not_seen.append(f"worker {result.host} does not see {path}")
            getattr(sink, word)(*arguments, **named)

    def end(self) -> None:
        """Do nothing: the workers are gone."""

    def require_seen(self) -> None:
        """Check that workers have seen all files that are here.

        Raises:
            BufdbError: they have not; their modules are not in the dataset.
        """
        if self.not_seen:
            count = len(self.not_seen)
            raise BufdbError(f"{count} modules were not read: {self.not_seen[0]}; {_SHARED}")


@dataclass
class Watched:
    """How far workers are, by the modules that have appeared in the dataset."""

    place: Storage
    mark: str | None
    """`Target.mark`."""
    sizes: dict[int, int]
    """Bytes of the modules that workers were given, by module_id."""
    before: set[str] = field(default_factory=set)
    """Objects of modules that are not of these workers."""
    next_s: float = 0.0

    def begin(self) -> None:
        """Note the modules that are already there."""
        self.before = set(self.place.names("modules"))

    def tell(self, progress: Progress | None) -> None:
        """Report progress, unless it was just reported; show that the mark is in use."""
        began = time.monotonic()
        if began < self.next_s:
            return
        if self.mark is not None:
            with contextlib.suppress(FileNotFoundError):  # which the workers report
                os.utime(self.mark)
        if progress is not None:
            self._tell(progress)
        now = time.monotonic()
        self.next_s = now + max(_WATCH_S, _WATCH_RATIO * (now - began))

    def _tell(self, progress: Progress) -> None:
        appeared = self.place.names("modules").keys() - self.before
        names = (layout.parse(text) for text in appeared)
        ids = {name.owner_id for name in names if name is not None}
        done = sum(size for key, size in self.sizes.items() if key in ids)
        total = sum(self.sizes.values())
        # All is done when the summary says so.
        progress(min(done, total - 1), total)


def _require_dumps(scatter: Scatter, target: Target, planned: Mapping[str, PlannedRun]) -> None:
    """Check that a worker can store parts, and sees a file of each run.

    Raises:
        BufdbError: it cannot, or does not.
    """
    firsts = [one.jobs[0] for one in planned.values() if one.jobs]
    files = [next(iter(job.files.files.values())).path for job in firsts]
    paths = [str(path.absolute()) for path in files if isinstance(path, Path) and path.exists()]
    unseen = scatter.check(target, paths)
    if unseen:
        raise BufdbError(f"a worker does not see {unseen[0]}; {_SHARED}")


@contextlib.contextmanager
def _mark(place: Storage) -> Iterator[str | None]:
    """Keep a file in the folder of a dataset within the block; None for a dataset at a URL.

    It is in the staging folder, so it has to be touched now and then (`clear_staging`).
    """
    if not isinstance(place, Folder):
        yield None
        return
    with place.staging() as folder:
        mark = folder / "mark"
        mark.touch()
        yield str(mark)


def _waves(
    order: Sequence[tuple[int, ...]], weight: Callable[[tuple[int, ...]], int]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the groups that are sent together; each worker is sent all parts of a wave."""
    wave: list[tuple[int, ...]] = []
    total = 0
    for ids in order:
        size = weight(ids)
        if wave and total + size > _WAVE_BYTES:
            yield wave
            wave, total = [], 0
        wave.append(ids)
        total += size
    if wave:
        yield wave


def _ids(group: Group) -> tuple[int, ...]:
    return tuple(job.module_id for job in group.jobs)


def _is_portable(group: Group) -> bool:
    """Return whether workers can read the files: members of archives are open in this process."""
    files = (file.path for job in group.jobs for file in job.files.files.values())
    return all(isinstance(path, Path | Object) for path in files)


def _absolute(group: Group) -> Group:
    """Return the group with paths that do not depend on the working directory."""
    jobs = []
    for job in group.jobs:
        files = {
            kind: replace(file, path=file.path.absolute()) if isinstance(file.path, Path) else file
            for kind, file in job.files.files.items()
        }
        jobs.append(Job(job.run, job.module_id, ModuleFiles(job.files.key, files)))
    return replace(group, jobs=jobs, block_bytes=BLOCK_BYTES)
