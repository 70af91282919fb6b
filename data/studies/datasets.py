"""Compare a dataset with a database file: CPU, files and bytes, before and after compaction.

    python datasets.py [COPIES]

Ingests the demo dumps COPIES times (20), each copy as six runs of its own, into a database file and
into a dataset, and asks both. Seconds are CPU of this process (user and system); ratios of one run
are what can be compared.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bufdb import resources
from bufdb.database import store
from bufdb.dataset import dump_ingest as dataset
from bufdb.dataset.compact import compact
from bufdb.dataset.snapshot import open_readable
from bufdb.ingest import ingest as database
from bufdb.query import catalogue, execute

DEMO = Path(__file__).parents[1] / "demo"
QUERIES = ("modules", "peak-by-op", "top-values", "diagnostics")
DAY = "2026-01-31"


def print_cpu(name: str, work: Callable[[], object]) -> None:
    """Print the CPU seconds that something takes."""
    began = time.process_time()
    work()
    print(f"{name:40} {time.process_time() - began:8.2f} s", flush=True)


def print_size(name: str, path: Path) -> None:
    """Print files and bytes."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    print(f"{name:40} {len(files):8} files {size / 1e6:9.2f} MB", flush=True)


def measure_queries(name: str, opened: Callable[..., object], path: Path) -> None:
    """Print what some saved queries cost, of all runs and of one, once everything is loaded."""
    known = catalogue.Catalogue([resources.query_folder()])

    def ask(params: dict[str, str]) -> None:
        for query in map(known.find, QUERIES):
            bound = execute.bind(query, params)
            con = opened(str(path), query.sql, runs=execute.runs_asked(bound))
            execute.execute_query(con, query, bound)

    ask({"run": "cpu_b8_0"})
    print_cpu(f"{len(QUERIES)} queries, {name}", lambda: ask({}))
    print_cpu(f"{len(QUERIES)} queries of one run, {name}", lambda: ask({"run": "cpu_b8_0"}))


def main(copies: int) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(copies):
            for run in (path for path in DEMO.iterdir() if path.is_dir()):
                shutil.copytree(run, root / "dumps" / f"{run.name}_{number}")
        runs = sorted((root / "dumps").iterdir())
        print_size("dumps", root / "dumps")
        file, out = root / "db.duckdb", root / "set"
        print_cpu("ingest, database", lambda: database.ingest(str(file), runs))
        day = {"dt": DAY}
        print_cpu("ingest, dataset", lambda: dataset.ingest(str(out), runs, metadata=day))
        print_cpu("ingest again, database", lambda: database.ingest(str(file), runs))
        print_cpu("ingest again, dataset", lambda: dataset.ingest(str(out), runs, metadata=day))
        print_size("database", file)
        print_size("dataset", out)
        measure_queries("database", store.open_readable, file)
        measure_queries("dataset", open_readable, out)
        print_cpu("compact", lambda: compact(str(out), grace_s=0))
        print_size("dataset, compacted", out)
        measure_queries("dataset, compacted", open_readable, out)
        print_cpu("ingest again, dataset, compacted", lambda: dataset.ingest(str(out), runs))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
