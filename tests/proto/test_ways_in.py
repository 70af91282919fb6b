"""Which facts each way into the database carries: a table in bufdb/commands/README.md."""

import re
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from places import ROOT
from proto_rows import PROTOS, TEXTS, needs_protobuf

from bufdb.ingest.ingest import MODULE_TABLES

pytestmark = needs_protobuf
PAGE = ROOT / "bufdb" / "commands" / "README.md"
PLACE = re.compile(r"(<!-- ways in -->\n).*?(<!-- end of ways in -->)", re.DOTALL)
WAYS: dict[str, list[Path]] = {
    "text": [ROOT / "data" / folder for folder in TEXTS.values()],
    "proto": [PROTOS / folder for folder in TEXTS],
}
"""By way the dumps of the same modules."""
OF_THE_INGEST = ("files", "diagnostics", "row_checksums")
"""Tables about the files and not about what they say."""


def filled(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, set[str]]:
    """The columns of each table that are not NULL in every row of a run's modules."""
    found = {}
    for table in MODULE_TABLES:
        if table in OF_THE_INGEST:
            continue
        columns = [name for name, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()]
        counts = ", ".join(f'count("{column}")' for column in columns)
        of_run = f"(SELECT module_id FROM modules WHERE run_name = '{run}')"
        (row,) = rows(con, f'SELECT {counts} FROM "{table}" WHERE module_id IN {of_run}')
        found[table] = {name for name, count in zip(columns, row, strict=True) if count}
    return found


def table_of_ways(con: duckdb.DuckDBPyConnection) -> str:
    for way, folders in WAYS.items():
        for folder in folders:
            ingest_into(con, folder, f"{way} {folder.name}")
            con.execute("UPDATE modules SET run_name = ? WHERE run_name LIKE ?", [way, f"{way} %"])
    ways = {way: filled(con, way) for way in WAYS}
    lines = [f"| table | {' | '.join(WAYS)} |", f"| --- |{' --- |' * len(WAYS)}"]
    for table in sorted(next(iter(ways.values()))):
        known = set().union(*(way[table] for way in ways.values())) - {"derived_from_proto"}
        cells = []
        for way in ways.values():
            lacking = sorted(known - way[table])
            without = "all but " + ", ".join(f"`{column}`" for column in lacking)
            cells.append("-" if not way[table] else without if lacking else "all")
        lines.append(f"| `{table}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_ways_in_is_current(
    con: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = table_of_ways(con)
    written = PLACE.sub(lambda found: f"{found[1]}{table}{found[2]}", page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(written, encoding="utf-8")
        return
    assert page == written, "'pytest tests/proto/test_ways_in.py --update-golden' writes it"
