"""What a run has stored of its modules, and what is left to read of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from bufdb.dumps.files import BEFORE, CODE
from bufdb.ingest.own import own_of_run
from bufdb.ingest.plan import Job, Request
from bufdb.ingest.work import Content, Group, made_with
from bufdb.read.own import Own, parse_own

if TYPE_CHECKING:
    import duckdb


NOT_READ_AGAIN = "not_read_again"
"""Code of the notice about a module whose rows are an earlier version's."""
UNCHANGED_SHARE = 8
"""So many stored modules are read together for one that is not stored: most have not changed, and
cost only their hash."""


class ToRead:
    """The modules of a run, separating those that need not be read."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection | None,
        run: str,
        jobs: Sequence[Job],
        request: Request,
        reader_count: int = 1,
        own: Own | None = None,
    ) -> None:
        """Look at what the run has: nothing if it is replaced or if there is no database.

        Groups are for so many readers at once; `own` is what counts as the user's, if not what
        the request or the run says.
        """
        block_bytes, own_globs = request.block_bytes, request.own_globs
        if con is None or request.replace:
            self.own, stored = parse_own(own_globs or ()), _Stored([])
        else:
            self.own, stored = own_of_run(con, run, own_globs), _Stored.of_run(con, run)
        self.own = own or self.own
        self.stored_ids = stored.ids
        """modules.module_id of everything that the run has."""
        same = [job for job in jobs if stored.has_same_stamps(job, self.own.pattern)]
        self.unchanged = [job.module_id for job in same]
        """Those whose places say, without being read, that nothing changed."""
        ids = set(self.unchanged)
        left = [job for job in jobs if job.module_id not in ids]
        self.groups = [
            Group(some, self.own, block_bytes, stored.contents(some), request.keeps_sources)
            for some in _grouped(left, stored.ids, block_bytes, reader_count)
        ]
        """The others, in order."""


def _grouped(
    jobs: Sequence[Job], stored: Iterable[int], block_bytes: int, reader_count: int
) -> Iterator[list[Job]]:
    """Yield consecutive modules of about a block of text; a large one is alone.

    All readers get as many groups, of about one size: with five groups, two would wait for the
    third of one of them.
    """
    known = set(stored)
    sizes = [
        sum(size for kind, size in job.sizes.items() if kind not in (BEFORE, CODE)) for job in jobs
    ]
    sizes = [
        size // UNCHANGED_SHARE if job.module_id in known else size
        for size, job in zip(sizes, jobs, strict=True)
    ]
    small = [size for size in sizes if size <= block_bytes]
    rounds = -(-sum(small) // (block_bytes * reader_count))
    if reader_count > 1 and rounds:
        # The largest module is what a group may fall short by.
        block_bytes = min(block_bytes, sum(small) // (rounds * reader_count) + max(small))
    group: list[Job] = []
    total = 0
    for job, size in zip(jobs, sizes, strict=True):
        if group and total + size > block_bytes:
            yield group
            group, total = [], 0
        group.append(job)
        total += size
    if group:
        yield group


class _Stored:
    """The modules of a run by id, each with what it was made of."""

    def __init__(self, rows: Iterable[tuple[int, str, str, str | None, str | None]]) -> None:
        """Take module_id, path, content_hash and source_stamp of files, and own_pattern."""
        contents: dict[int, set[tuple[str, str]]] = {}
        self._stamps: dict[int, set[tuple[str, str]]] = {}
        for module_id, path, content_hash, stamp, pattern in rows:
            current = made_with(pattern)
            contents.setdefault(module_id, {current}).add((path, content_hash))
            self._stamps.setdefault(module_id, {current}).add((path, stamp or ""))
        self._contents = {module_id: frozenset(content) for module_id, content in contents.items()}
        self.ids = self._contents.keys()

    @classmethod
    def of_run(cls, con: duckdb.DuckDBPyConnection, run: str) -> _Stored:
        return cls(
            con.execute(
                "SELECT files.module_id, files.path, "
                "if(dated.module_id IS NULL, files.content_hash, ''), "
                "if(dated.module_id IS NULL, files.source_stamp, NULL), modules.own_pattern "
                "FROM files JOIN modules ON modules.module_id = files.module_id "
                "LEFT JOIN (SELECT DISTINCT module_id FROM diagnostics WHERE code = ?) AS dated "
                "ON dated.module_id = modules.module_id WHERE modules.run_name = ?",
                [NOT_READ_AGAIN, run],
            ).fetchall()
        )

    def has_same_stamps(self, job: Job, own_pattern: str | None) -> bool:
        if job.module_id not in self._stamps:
            return False
        stamps = {(file.name, file.stamp or "") for file in job.files.files.values()}
        if not all(stamp for _, stamp in stamps):
            return False
        return self._stamps.get(job.module_id) == stamps | {made_with(own_pattern)}

    def contents(self, jobs: Iterable[Job]) -> dict[int, Content]:
        """Return what those of these modules that are stored were made of, by module_id."""
        ids = (job.module_id for job in jobs)
        return {one: self._contents[one] for one in ids if one in self._contents}
