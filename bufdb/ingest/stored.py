"""What a run has stored of its modules' files, and whether these are still the same."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from bufdb.ingest.group import Content, made_with
from bufdb.ingest.plan import Job


class Stored:
    """The modules of a run by id, each with what it was made of."""

    def __init__(self, con: duckdb.DuckDBPyConnection, run: str) -> None:
        contents: dict[int, set[tuple[str, str]]] = {}
        self._stamps: dict[int, set[tuple[str, str]]] = {}
        rows = con.execute(
            "SELECT files.module_id, files.path, files.content_hash, files.source_stamp, "
            "modules.own_pattern "
            "FROM files JOIN modules ON modules.module_id = files.module_id "
            "WHERE modules.run_name = ?",
            [run],
        ).fetchall()
        for module_id, path, content_hash, stamp, pattern in rows:
            own = made_with(pattern)
            contents.setdefault(module_id, {own}).add((path, content_hash))
            self._stamps.setdefault(module_id, {own}).add((path, stamp or ""))
        self._contents = {module_id: frozenset(content) for module_id, content in contents.items()}
        self.ids = self._contents.keys()
        """modules.module_id of all."""

    def has_same_stamps(self, job: Job, own_pattern: str | None) -> bool:
        """Whether the places of all files say, without their being read, that nothing changed."""
        stamps = {(file.name, file.stamp or "") for file in job.files.files.values()}
        if not all(stamp for _, stamp in stamps):
            return False
        return self._stamps.get(job.module_id) == stamps | {made_with(own_pattern)}

    def contents(self, jobs: Iterable[Job]) -> dict[int, Content]:
        """What those of these modules that are stored were made of, by module_id."""
        ids = (job.module_id for job in jobs)
        return {one: self._contents[one] for one in ids if one in self._contents}
