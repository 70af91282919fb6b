"""What a run has stored of its modules' files, and whether these are still the same."""

from __future__ import annotations

import duckdb

from bufdb.dumps.load import Loaded
from bufdb.ingest.plan import Job


class Stored:
    """The modules of a run by id, each with what it was made of."""

    def __init__(self, con: duckdb.DuckDBPyConnection, run: str) -> None:
        self._hashes: dict[int, set[tuple[str, str]]] = {}
        self._stamps: dict[int, set[tuple[str, str]]] = {}
        rows = con.execute(
            "SELECT files.module_id, files.path, files.content_hash, files.source_stamp, "
            "modules.own_pattern "
            "FROM files JOIN modules ON modules.module_id = files.module_id "
            "WHERE modules.run_name = ?",
            [run],
        ).fetchall()
        for module_id, path, content_hash, stamp, pattern in rows:
            made_with = _made_with(pattern)
            self._hashes.setdefault(module_id, {made_with}).add((path, content_hash))
            self._stamps.setdefault(module_id, {made_with}).add((path, stamp or ""))
        self.ids = self._hashes.keys()
        """modules.module_id of all."""

    def has_same_stamps(self, job: Job, own_pattern: str | None) -> bool:
        """Whether the places of all files say, without their being read, that nothing changed."""
        stamps = {(file.name, file.stamp or "") for file in job.files.files.values()}
        if not all(stamp for _, stamp in stamps):
            return False
        return self._stamps.get(job.module_id) == stamps | {_made_with(own_pattern)}

    def has_same_content(self, job: Job, loaded: Loaded, own_pattern: str | None) -> bool:
        """Whether the bytes of all files are those that were read."""
        files = job.files.files
        hashes = {(files[kind].name, content) for kind, content in loaded.hashes.items()}
        return self._hashes.get(job.module_id) == hashes | {_made_with(own_pattern)}


def _made_with(own_pattern: str | None) -> tuple[str, str]:
    """Stands among the files of a module for what else its rows depend on."""
    return "--own", own_pattern or ""
