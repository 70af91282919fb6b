"""Figures of compilations, from their dumps as any ingest reads them."""

from __future__ import annotations

import functools
import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import bufdb
from bufdb import resources
from bufdb.capture import cache
from bufdb.capture.before import UNREAD
from bufdb.database import store
from bufdb.dumps.place import Files
from bufdb.ingest.ingest import ingest_into

if TYPE_CHECKING:
    import duckdb

    from bufdb.fitting.session import Dumped

_SQL = """
SELECT
  need_bytes, peak_bytes, fixed_bytes, operation_count, estimated_cycles, accessed_bytes,
  accessed_unknown_reason
FROM memory_figures
LEFT JOIN (
  SELECT
    module_id,
    CASE WHEN count(operation_unknown_reason) = 0 THEN sum(operation_count)::BIGINT END
      AS operation_count,
    CASE WHEN count(estimate_unknown_reason) = 0 THEN sum(estimated_cycles)::BIGINT END
      AS estimated_cycles
  FROM instruction_costs
  GROUP BY module_id
) USING (module_id)
LEFT JOIN (
  SELECT
    module_id,
    CASE WHEN count(unknown_reason) = 0 THEN sum(accessed_bytes)::BIGINT END AS accessed_bytes,
    min(unknown_reason) AS accessed_unknown_reason
  FROM instruction_traffic
  GROUP BY module_id
) USING (module_id)
WHERE is_device_memory
ORDER BY need_bytes DESC NULLS LAST
LIMIT 1
"""

_KERNELS = """
SELECT instruction_sources.source, max(used_bytes)
FROM kernels
JOIN instruction_sources USING (module_id, instruction_name)
WHERE used_bytes IS NOT NULL AND instruction_sources.source IS NOT NULL
GROUP BY instruction_sources.source
ORDER BY instruction_sources.source
"""


class Figures(NamedTuple):
    """Of the module in a dump that needs most; each is None if unknown."""

    need_bytes: int | None = None
    peak_bytes: int | None = None
    fixed_bytes: int | None = None
    operation_count: int | None = None
    estimated_cycles: int | None = None
    accessed_bytes: int | None = None
    accessed_unknown_reason: str | None = None


class Scratch:
    """A database in memory that one compilation after the other is read into.

    To make one takes as long as to read a small dump.
    """

    @cached_property
    def _con(self) -> duckdb.DuckDBPyConnection:
        return store.open_writable(":memory:", {"threads": "1"})

    def figures(self, dumped: Dumped) -> Figures:
        """Return the figures of a compilation, which an earlier call may have read."""
        place = cache.folder()
        if place is None:
            return self._read(dumped)
        name = _name(dumped)
        known = cache.read(place, name)
        figures = self._read(dumped) if known is None else Figures(*json.loads(known))
        if known is None:
            cache.write(place, name, json.dumps(figures).encode())
        return figures

    def kernels(self, dumped: Dumped) -> dict[str, int]:
        """Return what kernels of a compilation use, by file and line [bytes].

        Of several kernels of a line it is that which uses most.
        """
        self._read(dumped)
        return dict(self._con.execute(_KERNELS).fetchall())

    @cached_property
    def _tables(self) -> list[str]:
        """Names of the tables that dumps are read into."""
        sql = "SELECT table_name FROM duckdb_tables() WHERE estimated_size = 0 ORDER BY table_name"
        return [name for (name,) in self._con.execute(sql).fetchall()]

    def _read(self, dumped: Dumped) -> Figures:
        for name in self._tables:  # all rows of a table go in no time, those of a run do not
            self._con.execute(f'DELETE FROM "{name}"')
        ingest_into(self._con, [Files("one", dumped.files, "")], run="one", keeps_sources=False)
        row = self._con.execute(_SQL).fetchone()
        return Figures() if row is None else Figures(*row)


def _name(dumped: Dumped) -> str:
    """Return the file of the figures of a dump: a hash of its files, and of the code that reads.

    Files that no ingest reads are left out: the dump that is kept has none.
    """
    digest = hashlib.sha256(code().encode())
    for name, file in sorted(dumped.files.items()):
        if name.endswith(UNREAD):
            continue
        with file.open("rb") if isinstance(file, Path) else file.open() as opened:
            content = opened.read()
        digest.update(b"%s:%d:" % (name.encode(), len(content)) + content)
    return f"{digest.hexdigest()}.figures"


@functools.cache
def code() -> str:
    """Return what identifies the code and the SQL that read dumps."""
    package = Path(bufdb.__file__).parent
    files = [*package.rglob("*.py"), *resources.schema_files("tables", "views", "macros")]
    return repr(sorted((path.name, path.stat().st_mtime_ns) for path in files))


def need_of(dumped: Dumped) -> int | None:
    """Return what a compilation needs; None if unknown, or if XLA gave up."""
    return None if dumped.refusal is not None else Scratch().figures(dumped).need_bytes
