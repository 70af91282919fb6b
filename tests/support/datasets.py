"""Datasets in tests: dumps to ingest, and all rows of a store side by side."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

import duckdb
from places import DEMO

from bufdb.database import definitions
from bufdb.dataset.dump_ingest import ingest
from bufdb.dataset.snapshot import open_readable

RUN = DEMO / "cpu_b8"
INIT = "module_0000.jit_init.cpu_after_optimizations"
LIVE = f"{INIT}-live-range.txt"
TODAY = "2026-01-31"
"""The day under which tests store runs, whenever they are."""
Rows = dict[str, list[tuple[object, ...]]]


def stored(url: object, path: Path = RUN, **more: object) -> object:
    """Ingest a folder of dumps under TODAY."""
    return ingest(str(url), [path], metadata={"dt": TODAY}, **more)


def prepared(folder: Path, file_format: str = "parquet") -> object:
    """Make in a folder what `stored` makes of RUN, as a copy: an ingest takes a second."""
    first, summary = _first(file_format)
    shutil.copytree(first.name, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return summary


@functools.cache
def _first(file_format: str) -> tuple[tempfile.TemporaryDirectory[str], object]:
    folder = tempfile.TemporaryDirectory(prefix="bufdb-tests-")
    return folder, stored(folder.name, file_format=file_format)


def copied(folder: Path) -> Path:
    """Dumps of a run that may be changed."""
    shutil.copytree(RUN, folder)
    return folder


def change(run: Path, more: str = " ") -> None:
    """Give the dumps of a run's module another content: its live ranges are no longer known."""
    with (run / LIVE).open("a", encoding="utf-8") as file:
        file.write(f"a line that says nothing{more}\n")


def all_rows(con: duckdb.DuckDBPyConnection, catalog: str = "bufdb") -> Rows:
    """Rows of all tables; when they were written is left out."""
    tables: Rows = {}
    for table in definitions.tables():
        columns = "* REPLACE (NULL AS ingested_at)" if table == "runs" else "*"
        sql = f'SELECT {columns} FROM {catalog}.main."{table}" ORDER BY ALL'
        tables[table] = con.execute(sql).fetchall()
    return tables


def rows_on(url: object) -> Rows:
    """The same of a dataset as it is now."""
    with open_readable(str(url)) as con:
        return all_rows(con)


def ask(url: object, sql: str) -> list[tuple[object, ...]]:
    """Return the answer to SQL on a dataset."""
    with open_readable(str(url)) as con:
        return con.execute(sql).fetchall()


def objects(root: Path, table: str = "*") -> set[str]:
    """Names of the objects of a dataset."""
    return {str(path.relative_to(root)) for path in root.glob(f"{table}/dt=*/*.parquet")}


def age(root: Path, seconds: float) -> None:
    """Let all objects be older by this [s]."""
    for name in objects(root):
        then = (root / name).stat().st_mtime - seconds
        os.utime(root / name, (then, then))
