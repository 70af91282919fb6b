"""Sessions of Spark and Sail, and one database whose tables they have too."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from places import ROOT

from bufdb import cli
from bufdb.database import store
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result
from bufdb.spark import session, tables

DATA = ROOT / "data"
RUNS: dict[str, tuple[Path, list[str]]] = {
    "cpu_b8": (DATA / "demo/cpu_b8", ["batch=8", "rank=0"]),
    "cpu_b16": (DATA / "demo/cpu_b16", ["batch=16", "rank=0"]),
    "cpu_b8_remat": (DATA / "demo/cpu_b8_remat", ["batch=8", "remat=full", "rank=1"]),
    "gpu_b8": (DATA / "demo/gpu_b8", ["batch=8"]),
    "loops_tpu": (DATA / "loops/tpu", []),
    "sharded_cpu": (DATA / "sharded/cpu", []),
    **{
        f"length_{size}": (DATA / f"lengths/length_{size}", [f"length={size}"])
        for size in (512, 1024, 2048)
    },
    "oom": (DATA / "oom/gpu.log", []),
    "leak": (DATA / "profiles", []),
}
"""Runs for the queries: every kind of dump, with labels to compare by."""
KERNELS = """
INSERT INTO kernels
SELECT
  module_id, instruction_name,
  CASE WHEN opcode <> 'fusion' THEN 'triton_kernel_call' END, 'shared',
  nullif(CAST(100 * (number % 7) AS BIGINT), 0), CASE WHEN number % 5 > 0 THEN 1000 END,
  CASE WHEN number % 7 = 0 THEN 'no size' END, CASE WHEN number % 5 = 0 THEN 'no limit' END
FROM (
  SELECT *, row_number() OVER (ORDER BY module_id, instruction_name) AS number
  FROM instructions
)
WHERE number % 31 = 0
"""
"""Rows of a table that no dump fills: equal sizes, unknown ones, fusions."""
SPARK_SETTINGS = {
    # Tables of one part each: what an engine answers is tried here, not how it moves rows about.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.constraintPropagation.enabled": "false",
}
"""Settings that make a plan sooner than it makes the answer."""


SPARK_TURN = 12
"""Every twelfth query runs on Spark, because planning each takes seconds; the others run by hand.
Sail is asked all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen = 0
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("connection") == "spark" and "query" in params:
            if seen % SPARK_TURN:
                item.add_marker(pytest.mark.by_hand)
            seen += 1


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database all.duckdb, and its tables as Parquet in a folder `tables`."""

    made = tmp_path_factory.mktemp("engines")
    db = ["--db", str(made / "all.duckdb")]
    for name, (path, labels) in RUNS.items():
        # Parquet files never have the dump files themselves.
        options = ["--no-sources", *(part for label in labels for part in ("--label", label))]
        assert cli.run(["ingest", "-q", str(path), "--run", name, *options, *db]) in (0, 4)
    with duckdb.connect(str(made / "all.duckdb")) as con:
        con.execute(KERNELS)
    assert cli.run(["export", "--format", "parquet", "-o", str(made / "tables"), *db]) == 0
    return made


@pytest.fixture(scope="session")
def duck(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with store.open_readable(str(folder / "all.duckdb")) as con:
        yield con


@dataclass
class Engine:
    """Spark or Sail, with the tables of `folder`."""

    name: str
    session: Any

    def answer(self, query: SavedQuery, values: dict[str, Value]) -> Result:
        return tables.answer(self.session, query, values)


@pytest.fixture(scope="session", name="opened")
def opened_engine() -> Callable[[str], Any]:
    return opened


def opened(name: str) -> Any:
    """A session on an engine; the test skips, and says why, where there is none."""
    if name == "sail" and importlib.util.find_spec("pysail") is None:
        pytest.skip("pysail is not installed: pip install 'bufdb[sail]'")
    if name == "spark" and importlib.util.find_spec("py4j") is None:
        pytest.skip("Spark is not installed: pip install 'bufdb[spark]'")
    if name == "spark" and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Spark needs Java 17")
    # A process of pytest-xdist runs no file, from which pyspark takes it for one of its doctests.
    sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return session.sail() if name == "sail" else session.start("local[2]")


@pytest.fixture(scope="session", params=["sail", "spark"])
def connection(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """An engine's name and a session on it, without tables."""
    return request.param, opened(request.param)


@pytest.fixture(scope="module")
def engine(connection: tuple[str, Any], request: pytest.FixtureRequest) -> Engine:
    name, made = connection
    # Asked for when an engine is there: it takes longer than to skip all tests.
    folder: Path = request.getfixturevalue("folder")
    tables.register(made, str(folder / "tables"))
    if name == "spark":
        for setting, value in SPARK_SETTINGS.items():
            made.conf.set(setting, value)
        for file in (folder / "tables").glob("*.parquet"):
            made.table(file.stem).coalesce(1).cache().createOrReplaceTempView(file.stem)
    return Engine(name, made)
