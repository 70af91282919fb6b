"""Rows that a proto gives and rows that the texts of the same module give, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest
from places import ROOT

from bufdb.ingest.rows import MODULE_TABLES
from bufdb.proto import reader

PROTOS = ROOT / "data" / "protos"
TEXTS = {"cpu": "sharded/cpu", "gpu": "loops/gpu", "tpu": "loops/tpu"}
"""Folder in data/ with the texts of the same modules, by folder of data/protos."""

needs_protobuf = pytest.mark.skipif(
    not reader.is_readable(), reason="the package protobuf (bufdb[proto]) is not installed"
)

NOT_COMPARED = {
    "files": "the files themselves",
    "row_counts": "counts of the rows of these tables, too",
    "compiler_options": "they are in a file of their own",
    "entry_parameters": "they are in a file of their own",
    "reported_sums": "they are in a file of their own",
    "peak_stack_nodes": "the printed tree is in no proto",
    "diagnostics": "asked for by themselves",
}
"""Tables that differ, and why."""
OF_TEXT_ALONE = {
    "modules": {
        "derived_from_proto": "says where rows are from",
        "format_era": "says where rows are from",
        "module_key": "compared under the modules' names",
        "run_name": "two runs",
        "reported_peak_tree_bytes": "the printed tree is in no proto",
    },
    "allocations": {"page": "no proto has pages"},
    "instructions": {"text": "bufdb prints the attributes that it reads"},
    "uses": {"use_ordinal": "users of one place stand in the order in which they came to be"},
}
"""Columns that differ, and why."""


def differences(con: duckdb.DuckDBPyConnection, one: str, other: str) -> list[str]:
    """Tables of two runs with the same modules that do not have the same rows."""
    differing = []
    for table in MODULE_TABLES:
        if table in NOT_COMPARED:
            continue
        without = ", ".join(["module_id", *OF_TEXT_ALONE.get(table, {})])
        sides = [
            f'SELECT m.module_name, t.* EXCLUDE ({without}) FROM "{table}" t '
            f"JOIN modules m ON m.module_id = t.module_id WHERE m.run_name = '{run}'"
            for run in (one, other)
        ]
        lost, more = (
            con.execute(f"{a} EXCEPT ALL {b}").fetchall() for a, b in (sides, reversed(sides))
        )
        if lost or more:
            differing.append(
                f"{table}: {len(lost)} rows lost, such as {lost[:1]}; {more[:1]} instead"
            )
    return differing


def put(folder: Path, files: Iterable[Path]) -> Path:
    """A folder with copies of some files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
    return folder
