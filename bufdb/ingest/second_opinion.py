"""A second opinion on modules that have text and a proto: rows from the proto alone, compared.

Text wins where both have a part, so a proto next to it was not used. Read now, all its parts must
equal what was stored. Its files are found by their hashes, below a given directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import xxhash

from bufdb.database import store
from bufdb.dumps.discover import discover
from bufdb.dumps.files import PROTO, ModuleFiles
from bufdb.dumps.load import read_span
from bufdb.ingest.plan import Job, PlannedRun, Request
from bufdb.ingest.storing import Ingest

COMPARED = {
    "allocations": "allocation_index, size_bytes, color, kind, parameter_number, "
    "parameter_shape_index",
    "values": "value_id, instruction_name, shape_index, is_phi, color, allocation_index, "
    "size_bytes, offset_bytes, shape",
    "positions": "value_id, position_ordinal, instruction_name, shape_index",
    "uses": "value_id, instruction_name, operand_number, operand_index",
    "instructions": "instruction_name, program_order, opcode, shape, op_name",
    "live_ranges": "value_id, instruction_name, shape_index, start_time, end_time",
    "occupied_peaks": "color, peak_time, occupied_temp_bytes",
}
"""Tables and columns for which a proto gives exactly what the text gives, in any order of rows."""


@dataclass(frozen=True)
class Disagreement:
    """Rows of one table of one module that differ when they come from the proto."""

    module_key: str
    table: str
    row_count: int
    """Rows from the text that the proto does not give, and the other way around."""
    example: str


@dataclass
class Opinion:
    """The result of a comparison."""

    disagreements: list[Disagreement]
    asked_count: int
    """Modules that were compared."""
    missing_count: int
    """Modules with text and proto whose proto is not below the directory."""


def ask(con: duckdb.DuckDBPyConnection, folder: Path) -> Opinion:
    """Compare the modules of a database that have text and a proto.

    Args:
        con: the database.
        folder: where the protos are, at any depth.

    Raises:
        UsageError: there is no such directory.
    """
    rows = con.execute(
        "SELECT files.content_hash, modules.module_id, modules.module_key FROM files "
        "JOIN modules ON modules.module_id = files.module_id "
        "WHERE files.file_kind = 'proto' AND modules.format_era <> 'P' ORDER BY ALL"
    ).fetchall()
    wanted: dict[str, list[tuple[int, str]]] = {}
    for content, module_id, key in rows:
        wanted.setdefault(content, []).append((module_id, key))
    opinion = Opinion([], 0, len(rows))
    for files in discover(folder):
        file = files.files.get(PROTO)
        if file is None:
            continue
        content = xxhash.xxh3_128_hexdigest(read_span(file, 0, file.size()))
        for module_id, key in wanted.pop(content, []):
            alone = ModuleFiles(key, {PROTO: file})
            opinion.disagreements += _compare(con, module_id, key, alone)
            opinion.asked_count += 1
            opinion.missing_count -= 1
    return opinion


def _compare(
    con: duckdb.DuckDBPyConnection, module_id: int, key: str, files: ModuleFiles
) -> Iterator[Disagreement]:
    other = store.open_writable(":memory:")
    try:
        planned = {"proto": PlannedRun(Path(key), [Job("proto", module_id, files)])}
        Ingest(other, planned, Request(keeps_sources=False)).run()
        for table, columns in COMPARED.items():
            rows = f'SELECT {columns} FROM "{table}" WHERE module_id = {module_id}'
            own_rows, other_rows = (Counter(c.execute(rows).fetchall()) for c in (con, other))
            if own_rows != other_rows:
                lost, more = own_rows - other_rows, other_rows - own_rows
                name, some = ("text", lost) if lost else ("proto", more)
                example = f"{name}: {min(map(str, some))}"
                yield Disagreement(key, table, lost.total() + more.total(), example)
    finally:
        other.close()
