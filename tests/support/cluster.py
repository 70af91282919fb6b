"""Kill one of two Spark workers on this machine while it ingests real dumps.

Starts a master and two workers on loopback from the jars of pyspark, ingests each run by
`bufdb ingest --engine spark`, ends one worker and all its processes on the way, ingests the same
without Spark, and compares all tables. Then a new worker takes the place of the killed one, and
every saved query that claims Spark is asked there and in DuckDB, over the same files.

    pip install 'bufdb[spark]'                 # and Java 17
    python cluster.py                          # data/demo, eight times
    python cluster.py DUMPS --copies 20        # a folder with a folder of dumps for each run

Exits with 1 if a row differs, or if no worker could be killed before all was stored.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from datasets import objects, rows_on
from engine_claims import comparable
from standalone import Standalone, standalone

from bufdb import resources
from bufdb.dataset import compact, layout, snapshot
from bufdb.errors import BufdbError
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery, Value

DEMO = Path(__file__).parents[2] / "data" / "demo"
KILL_SHARE = 0.2
"""Least share of modules stored when the worker is killed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", nargs="?", type=Path, default=DEMO)
    parser.add_argument("--copies", type=int, default=8, help="how often each run is there")
    parser.add_argument("--no-queries", action="store_true", help="only ingest and compare tables")
    parser.add_argument("--query", action="append", help="only these queries")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-cluster-")))
        runs = copied(arguments.dumps, arguments.copies, folder / "runs")
        with timed("starting a master and two workers"):
            cluster = stack.enter_context(standalone(folder / "spark"))
        os.environ.update(cluster.environment())
        faults = ingested(cluster, runs, folder)
        if not arguments.no_queries:
            with timed("starting a worker in place of the killed one"):
                cluster.add_worker()
            faults += compare(cluster.master, folder / "dataset", runs, arguments.query)
    print(f"NOT AS IT SHOULD BE: {'; '.join(faults)}" if faults else "all as it should be")
    return 1 if faults else 0


def copied(dumps: Path, copies: int, target: Path) -> Path:
    """Each run of a folder several times, under names of its own."""
    runs = [path for path in sorted(dumps.iterdir()) if path.is_dir()]
    for number in range(copies):
        for run in runs:
            shutil.copytree(run, target / (f"{run.name}.{number}" if number else run.name))
    return target


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.1f} s", flush=True)


def ingested(cluster: Standalone, runs: Path, folder: Path) -> list[str]:
    """Kill a worker during an ingest and list what is wrong with the dataset."""
    alone, dataset = folder / "alone", folder / "dataset"
    with timed("ingest without Spark"):
        subprocess.run(ingest(runs, alone), check=False)
    module_count = len(objects(alone, "modules"))
    faults = []
    spark = ["--engine", "spark", "--master", cluster.master]
    with timed("ingest by two workers, one killed on the way"):
        process = subprocess.Popen([*ingest(runs, dataset), *spark])
        try:
            while process.poll() is None:
                stored = len(objects(dataset, "modules"))
                if stored >= KILL_SHARE * module_count:
                    pids = cluster.kill_worker(0)
                    print(f"killed a worker ({len(pids)} processes), {stored} of {module_count} "
                          "modules stored", flush=True)  # fmt: skip
                    if stored >= module_count or process.poll() is not None:
                        faults.append("all was stored before the worker was killed: more --copies")
                    break
                time.sleep(0.05)
            if process.wait() not in (0, 4):
                faults.append(f"bufdb ingest ended with {process.returncode}")
        finally:
            process.kill()
    expected, actual = rows_on(alone), rows_on(dataset)
    different = [table for table in expected if expected[table] != actual[table]]
    faults += [f"table {table} differs" for table in different]
    rows = sum(map(len, expected.values()))
    verdict = f"different: {', '.join(different)}" if different else "all equal"
    print(f"{len(expected)} tables, {rows} rows, {module_count} modules: {verdict}", flush=True)
    return faults


def ingest(runs: Path, out: Path) -> list[str]:
    command = [sys.executable, "-m", "bufdb", "ingest", "--run-from-dir", str(runs)]
    return [*command, "--out", str(out)]


def compare(master: str, dataset: Path, runs: Path, only: list[str] | None) -> list[str]:
    """Return the queries with other rows on Spark than in DuckDB; print a line for each."""
    from bufdb.spark import session, tables

    with timed("compaction"):
        days = {path.name.removeprefix("dt=") for path in dataset.glob("modules/dt=*")}
        print(compact.compact(str(dataset), sorted(days), grace_s=0.0).line())
    with timed("starting a session"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = session.start(master)
        tables.register(opened, str(dataset))
        for table in layout.tables():  # else each query plans, reads and joins its files again
            opened.table(table).coalesce(1).cache().createOrReplaceTempView(table)
    names = sorted(path.name for path in runs.iterdir())
    faults, asked_count = list[str](), 0
    print(f"\n{'query':24} {'rows':>6}  {'':9} {'DuckDB':>8} {'Spark':>8}")
    queries = catalogue.Catalogue([resources.query_folder()]).load_all()
    with snapshot.open_readable(str(dataset)) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for query in queries:
            if only and query.name not in only:
                continue
            if "spark" not in query.engines:
                reason = textwrap.shorten(query.engines_reason or "no claim", 60)
                print(f"{query.name:24} {'':6}  not on Spark: {reason}")
                continue
            bound = execute.bind(query, sides(query, names))
            began = time.perf_counter()
            expected = execute.execute_query(con, query, bound).rows
            middle = time.perf_counter()
            try:
                rows = tables.answer(opened, query, bound).rows
                is_equal = comparable(rows) == comparable(expected)
                word = "equal" if is_equal else "DIFFERENT"
            except BufdbError as error:
                is_equal, word = False, f"FAILED {error}"
            end = time.perf_counter()
            print(f"{query.name:24} {len(expected):6}  {word:9} {middle - began:6.2f} s "
                  f"{end - middle:6.2f} s", flush=True)  # fmt: skip
            faults += [] if is_equal else [f"query {query.name}"]
            asked_count += 1
    opened.stop()
    print(f"\n{asked_count} queries asked on both, {asked_count - len(faults)} equal")
    return faults if asked_count else ["no query was asked"]


def sides(query: SavedQuery, runs: list[str]) -> dict[str, Value]:
    """Two runs, for a query that compares."""
    params = {"base": runs[0], "new": runs[-1]}
    return {param.name: params[param.name] for param in query.params if param.name in params}


if __name__ == "__main__":
    sys.exit(main())
