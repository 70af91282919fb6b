"""The columnar reader and the simple one give the same rows, on real dumps and on written ones."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingesting import ingest_into
from places import DEMO
from reader_rows import TABLES, ordered
from second_reader import read_module
from shared_dumps import (
    DUMPS,
    LOOPS,
    SETS,
    all_modules,
    group,
    needs_dumps,
    needs_loops,
    read_files,
)

from bufdb.ingest.plan import module_id_of


def stored(con: duckdb.DuckDBPyConnection, table: str) -> dict[int, list[dict[str, Any]]]:
    """The rows of a table by module."""
    cursor = con.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in cursor.fetchall():
        record = dict(zip(names, row, strict=True))
        rows.setdefault(record.pop("module_id"), []).append(record)
    return rows


def differences(con: duckdb.DuckDBPyConnection, modules: dict[int, Any]) -> list[str]:
    """List tables whose stored rows are not those of the simple reader."""
    differing = []
    tables = {table: stored(con, table) for table in (*TABLES, "modules")}
    for module_id, (key, files) in modules.items():
        simple = read_module(read_files(files))
        for table in TABLES:
            first_rows, second_rows = (
                ordered(tables[table].get(module_id, [])),
                ordered(simple[table]),
            )
            if first_rows != second_rows:
                only_first = sorted(set(first_rows) - set(second_rows))[:2]
                only_second = sorted(set(second_rows) - set(first_rows))[:2]
                differing.append(
                    f"{key} {table} {len(first_rows)}/{len(second_rows)}: "
                    f"{only_first} {only_second}"
                )
        (row,) = tables["modules"][module_id]
        (facts,) = simple["modules"]
        odd = {name: (row[name], value) for name, value in facts.items() if row[name] != value}
        if odd:
            differing.append(f"{key} modules {odd}")
    return differing


def check_agreement(
    folder: Path, modules: list[tuple[str, Any]], con: duckdb.DuckDBPyConnection
) -> None:
    """Check that both readers agree on a folder's modules, and that nothing is left unread."""
    summary = ingest_into(con, folder)
    by_id = {module_id_of(folder.name, key): (key, files) for key, files in modules}
    assert summary.module_count == len(by_id) > 0
    rows = con.execute("FROM diagnostics WHERE severity IN ('error', 'data_loss')").fetchall()
    assert rows == []
    assert differences(con, by_id) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(path.name for path in DEMO.iterdir() if path.is_dir()))
def test_both_readers_agree_on_every_demo_dump(name: str, con: duckdb.DuckDBPyConnection) -> None:
    modules = sorted(group(DEMO / name).items())
    check_agreement(DEMO / name, modules, con)


@needs_dumps
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SETS)
def test_both_readers_agree_on_every_sample_dump(name: str, con: duckdb.DuckDBPyConnection) -> None:
    modules = [(key, files) for set_name, key, files in all_modules() if set_name == name]
    check_agreement(DUMPS / name, modules, con)


@needs_loops
@pytest.mark.slow
def test_both_readers_agree_on_every_loop_dump(con: duckdb.DuckDBPyConnection) -> None:
    """Loop dumps, where most live values are one buffer under several names."""
    dumps = LOOPS / "dumps"
    check_agreement(dumps, sorted(group(dumps).items()), con)
