"""Facts that each way into the database provides: a table in bufdb/commands/ingest.md."""

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from places import ROOT
from proto_rows import PROTOS, TEXTS, needs_protobuf

from bufdb.ingest.rows import MODULE_TABLES
from bufdb.proto.reader import fields

pytestmark = needs_protobuf
PAGE = ROOT / "bufdb" / "commands" / "ingest.md"
PLACE = re.compile(r"(<!-- ways in -->\n).*?(<!-- end of ways in -->)", re.DOTALL)
_ASSIGNMENT, _TRACES = 3, 4
"""Fields of an HloProto and of its buffer assignment."""


def of_text(folder: Path) -> list[Path]:
    """Text dumps of three compilers."""
    return [ROOT / "data" / name for name in TEXTS.values()]


def of_protos(folder: Path) -> list[Path]:
    """Protos of the same modules."""
    return [PROTOS / name for name in TEXTS]


def of_compiled(folder: Path) -> list[Path]:
    """Return the protos that JAX returns after compiling: all but the heap simulator's traces."""
    for path in PROTOS.glob("*/*.hlo.pb"):
        place = folder / path.parent.name / path.name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(without(path.read_bytes(), _ASSIGNMENT, _TRACES))
    return [folder / name for name in TEXTS]


def of_message(name: str) -> Callable[[Path], list[Path]]:
    return lambda folder: [ROOT / "data" / "oom" / name]


def without(data: bytes, *path: int) -> bytes:
    """A message without the field to which a path of numbers leads."""
    kept = b""
    for number, kind, start, stop in fields(data):
        inside = data[start:stop]
        if number == path[0] and len(path) == 1:
            continue
        if number == path[0]:
            inside = without(inside, *path[1:])
        kept += _varint(number << 3 | kind)
        kept += (_varint(len(inside)) if kind == 2 else b"") + inside
    return kept


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])


WAYS: dict[str, Callable[[Path], list[Path]]] = {
    "text": of_text,
    "proto": of_protos,
    "compiled": of_compiled,
    "message of a GPU": of_message("gpu.log"),
    "message of a TPU": of_message("tpu.log"),
}
"""Inputs of each way, from an empty folder; the first three are the same modules."""
OF_THE_INGEST = ("files", "diagnostics", "row_counts")
"""Tables about the files and not about what they say."""


def filled(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, set[str]]:
    """The columns of each table that are not NULL in every row of a run's modules."""
    filled_columns = {}
    for table in MODULE_TABLES:
        if table in OF_THE_INGEST:
            continue
        columns = [name for name, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()]
        counts = ", ".join(f'count("{column}")' for column in columns)
        of_run = f"(SELECT module_id FROM modules WHERE run_name = '{run}')"
        (row,) = rows(con, f'SELECT {counts} FROM "{table}" WHERE module_id IN {of_run}')
        filled_columns[table] = {name for name, count in zip(columns, row, strict=True) if count}
    return filled_columns


def cell(known: set[str], has: set[str]) -> str:
    """Return a table's columns that a way fills, or "all but" the others if that is shorter."""
    lacking = sorted(known - has)
    if not has or not lacking:
        return "all" if has else "-"
    names = sorted(known & has)
    if len(names) < len(lacking):
        return ", ".join(f"`{name}`" for name in names)
    return "all but " + ", ".join(f"`{name}`" for name in lacking)


def table_of_ways(con: duckdb.DuckDBPyConnection, folder: Path) -> str:
    for number, (way, places) in enumerate(WAYS.items()):
        (folder / str(number)).mkdir()
        for place in places(folder / str(number)):
            ingest_into(con, place, f"{way} {place.name}")
            con.execute("UPDATE modules SET run_name = ? WHERE run_name LIKE ?", [way, f"{way} %"])
    ways = {way: filled(con, way) for way in WAYS}
    alike: dict[str, list[str]] = {}
    for table in sorted(next(iter(ways.values()))):
        known = set().union(*(way[table] for way in ways.values())) - {"derived_from_proto"}
        cells = [cell(known, way[table] - {"derived_from_proto"}) for way in ways.values()]
        alike.setdefault(" | ".join(cells), []).append(f"`{table}`")
    lines = [f"| table | {' | '.join(WAYS)} |", f"| --- |{' --- |' * len(WAYS)}"]
    lines += [f"| {', '.join(tables)} | {cells} |" for cells, tables in alike.items()]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_table_of_ways_in_is_current(
    con: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = table_of_ways(con, tmp_path)
    written = PLACE.sub(lambda match: f"{match[1]}{table}{match[2]}", page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(written, encoding="utf-8")
        return
    assert page == written, "'pytest tests/proto/test_ways_in.py --update-golden' writes it"
