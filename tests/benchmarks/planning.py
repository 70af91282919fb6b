"""The figures of bufdb/dataset/PLANNING.md: what a module takes, and what a million cost to ask.

    python planning.py real DUMPS…                       rows, bytes, CPU and files of real modules
    python planning.py many FOLDER [--modules 2000]      a dataset of very many modules, asked
    python planning.py many FOLDER --modules 1000000 --days 10 --spark

`many` writes compacted days as `bufdb compact` lays them out, from the rows of the demo dumps again
and again, with other ids, names and sizes: 100 modules a run, a run for each host and day. Tables
that no query of several runs reads are left out, and those that only questions of a run's values
read are there for the last day alone. Each question is a process of its own, as from a shell;
seconds are CPU (user and system), memory is the peak resident set. Spark is asked in one session;
its memory is that of its JVM.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import duckdb

from bufdb import resources
from bufdb.database.quoting import sql_text
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import compact as compaction
from bufdb.dataset import ingest as dataset
from bufdb.dataset import layout
from bufdb.dataset.writer import OPTIONS
from bufdb.ingest import ingest as database
from bufdb.ingest.rows import MODULE_TABLES
from bufdb.query import catalogue, execute

DEMO = Path(__file__).parents[2] / "data" / "demo"
DAY = "2026-01-31"
MODULES_OF_RUN = 100
FIRST_DAY = date(2026, 1, 1)
BATCHES = (8, 16, 32, 64)
MEMORY_LIMIT = "4GB"
"""Of a query: that of every question, a fraction of the machine's, is too little for all runs."""
OF_ALL = (
    *("runs", "run_labels", "modules", "memory_sums", "occupied_peaks", "peaks", "allocations"),
    *("compiler_options", "files", "shapes", "diagnostics", "values"),
)
"""Tables that queries of all runs read."""
OF_ONE = (
    *("instructions", "live_ranges", "occupancy_steps", "peak_savings", "peak_values"),
    *("positions", "stack_frames", "uses", "value_origins", "value_users"),
)
"""Further tables that queries of a run's values read: stored of the last day alone."""
SHAPES = (
    "(SELECT shapes.*, used.module_id FROM few.shapes JOIN (SELECT DISTINCT module_id, shape FROM "
    'few."values" UNION SELECT module_id, shape FROM few.instructions) AS used '
    "ON used.shape = shapes.shape)"
)


def files_below(path: Path) -> list[Path]:
    """All files."""
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def bytes_of(path: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in files_below(path))


def real(paths: list[Path]) -> None:
    """Print what the modules of dumps take as a database and as a dataset."""
    size = sum(map(bytes_of, paths)) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "db.duckdb"), Path(folder, "set")
        began = time.process_time()
        summary = database.ingest(str(file), paths, jobs=1)
        into_file = time.process_time() - began
        count = summary.module_count
        print(f"{count} modules, {size:.2f} MB: {size / count * 1000:.0f} kB a module")
        print(
            f"database: {into_file / size:.3f} CPU s/MB, {bytes_of(file) / size / 1e6:.3f} of text"
        )
        began = time.process_time()
        dataset.ingest(str(out), paths, metadata={"dt": DAY})
        took = time.process_time() - began
        told(out, count, f"dataset: {took / size:.3f} CPU s/MB, {took / count:.3f} s a module")
        began = time.process_time()
        compaction.compact(str(out), grace_s=0)
        took = time.process_time() - began
        told(out, count, f"compacted: {took / count * 1000:.1f} CPU ms a module")
        by_table(file, out, count)


def told(out: Path, count: int, text: str) -> None:
    """Print files and bytes of a dataset for each module."""
    number, size = len(files_below(out)), bytes_of(out)
    print(f"{text}, {number} files ({number / count:.1f}), {size / count / 1000:.1f} kB a module")


def by_table(file: Path, out: Path, count: int) -> None:
    """Print rows and compacted bytes for each table, and rows of modules by their rank."""
    with duckdb.connect(str(file), read_only=True) as con:
        print("table, rows a module, bytes a module, bytes a row")
        for table in layout.tables():
            ((rows,),) = con.execute(f'SELECT count(*) FROM "{table}"').fetchall()
            size = bytes_of(out / table) if rows else 0
            print(f"{table:24} {rows / count:9.1f} {size / count:9.0f} {size / (rows or 1):7.1f}")
        parts = " UNION ALL ".join(f'SELECT module_id FROM "{name}"' for name in MODULE_TABLES)
        found = con.execute(
            f"SELECT count(*) FROM ({parts}) GROUP BY module_id ORDER BY 1"
        ).fetchall()
    rows_of = [int(rows) for (rows,) in found]
    mean = statistics.fmean(rows_of)
    print(
        f"rows of a module: least {rows_of[0]}, median {statistics.median(rows_of):.0f}, "
        f"mean {mean:.0f}, most {rows_of[-1]}"
    )


class Many:
    """Writes days of a dataset from the rows of few modules."""

    def __init__(self, few: Path, root: Path, owners_of_part: int) -> None:
        self.root, self.runs_of_part = root, max(1, owners_of_part // MODULES_OF_RUN)
        self.con = duckdb.connect()
        self.con.execute(f"ATTACH {sql_text(few)} AS few (READ_ONLY)")
        self.columns = layout.columns(self.con, "few")
        self.con.execute(
            "CREATE TABLE chosen AS SELECT number, run_name AS old_run, module_id AS old_id FROM ("
            "SELECT row_number() OVER (ORDER BY run_name, module_key) - 1 AS place, * "
            "FROM few.modules), range(1000) AS numbers(number) "
            "WHERE place = number % (SELECT count(*) FROM few.modules)"
        )

    def day(self, number: int, run_count: int, tables: tuple[str, ...]) -> None:
        """Write one day."""
        day = (FIRST_DAY + timedelta(number)).isoformat()
        for first in range(0, run_count, self.runs_of_part):
            last = min(first + self.runs_of_part, run_count)
            part = (1 << 40) | (number * run_count + first + 1)
            self._choose(number, day, first, last)
            for table in tables:
                self._write(table, day, part)

    def _choose(self, number: int, day: str, first: int, last: int) -> None:
        """Table `copies`: the modules of some runs, and of what they are copies."""
        batches = ", ".join(map(str, BATCHES))
        self.con.execute(
            "CREATE OR REPLACE TABLE copies AS SELECT *, "
            "(hash(run_name, number) >> 1)::BIGINT AS new_id, "
            "(hash(run_name) >> 1)::BIGINT AS run_id, "
            f"batch * 100 + {number} * 3 + host % 7 AS factor, "
            f"'{day}'::TIMESTAMP + INTERVAL (host) SECOND AS dumped FROM (SELECT *, "
            f"'{day}-host' || lpad(host::VARCHAR, 4, '0') AS run_name, "
            f"[{batches}][1 + host % {len(BATCHES)}] AS batch "
            f"FROM range({first}, {last}) AS hosts(host)) "
            f"JOIN chosen ON number < {MODULES_OF_RUN} ORDER BY host, number"
        )

    def _write(self, table: str, day: str, part: int) -> None:
        types = self.columns[table]
        cells = ", ".join(
            f'({self._cell(table, name, kind)})::{layout.stored_type(kind)} AS "{name}"'
            for name, kind in types.items()
        )
        owner = "run_id" if table in ("runs", "run_labels") else "new_id"
        cells += f", {owner} AS owner_id, 1::BIGINT AS owner_version, {part}::BIGINT AS part_id"
        if table in layout.MARKERS:
            cells += f", FALSE AS is_removed, {SCHEMA_VERSION}::INTEGER AS schema_version"
        if table == "run_labels":
            kinds = "(VALUES ('batch', 0), ('host', 1), ('dt', 2)) AS kinds(kind, k)"
            source = f"CROSS JOIN {kinds}"
        elif table == "runs":
            source = "JOIN few.runs AS stored ON stored.run_name = copies.old_run"
        else:
            stored = SHAPES if table == "shapes" else f'few."{table}"'
            source = f"JOIN {stored} AS stored ON stored.module_id = copies.old_id"
        where = " WHERE copies.number = 0" if owner == "run_id" else ""
        target = self.root / layout.part_name(table, day, part, 0)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.con.execute(
            f"COPY (SELECT {cells} FROM copies {source}{where}) TO {sql_text(target)} ({OPTIONS})"
        )

    def _cell(self, table: str, name: str, kind: str) -> str:
        """A column of a copy as SQL."""
        if name == "run_name":
            return "copies.run_name"
        if name == "module_id":
            return "copies.new_id"
        if table == "run_labels":
            return {
                "label": "kinds.kind",
                "label_value": "[copies.batch::VARCHAR, copies.host::VARCHAR, "
                "copies.dumped::DATE::VARCHAR][kinds.k + 1]",
                "is_metadata": "kinds.k > 0",
            }[name]
        if name in ("dumped_at", "ingested_at"):
            return "copies.dumped"
        if name in ("module_key", "function_name"):
            return f"stored.{name} || '_' || copies.number"
        if name.endswith("_bytes") and table not in ("files", "shapes") and kind.endswith("INT"):
            return f'stored."{name}" * copies.factor'
        return f'stored."{name}"'


def asked(days: int, hosts: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Queries with their parameters: of all runs, of a day's, of two, of one."""
    day = (FIRST_DAY + timedelta(days - 1)).isoformat()
    before = (FIRST_DAY + timedelta(max(days - 2, 0))).isoformat()
    host = f"{min(hosts - 1, 7):04d}"
    one = f"{day}-host{host}"
    for name in ("modules", "top-temps", "peak-by-op"):
        yield name, {"run": one}
    yield "diff-modules", {"base": f"{before}-host{host}", "new": one}
    yield "series", {"run": f"host={int(host)}"}
    yield "peak-by-op", {"run": f"{day}-host00*"}
    yield "peak-matrix", {"run": f"{day}-*"}
    for name in ("runs", "jit-functions", "peak-matrix", "series", "first-regression", "modules"):
        yield name, {}
    yield "scaling", {"run": f"{day}-*", "fixed": "dt"}
    yield "ranks", {"run": f"{day}-*", "label": "host", "fixed": "batch,dt"}


def ask(root: Path, days: int, hosts: int, timeout_s: float) -> None:
    """Print what each question costs DuckDB."""
    print("query, parameters, rows, CPU s, wall s, peak MB")
    for name, given in asked(days, hosts):
        pairs = [word for key, value in given.items() for word in ("-p", f"{key}={value}")]
        words = ["query", name, "--on", str(root), *pairs, "--format", "csv"]
        words += ["--memory-limit", MEMORY_LIMIT]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            began = time.monotonic()
            child = subprocess.Popen(
                [sys.executable, "-m", "bufdb", *words], stdout=out, stderr=err
            )
            usage = None
            while usage is None:
                pid, status, found = os.wait4(child.pid, os.WNOHANG)
                usage = found if pid else None
                if not pid and time.monotonic() - began > timeout_s:
                    child.kill()
                time.sleep(0.01)
            wall = time.monotonic() - began
            out.seek(0)
            err.seek(0)
            answer = f"{max(0, len(out.readlines()) - 1)} rows"
            if status:
                answer = err.read().decode()[:100].strip() or f"stopped after {timeout_s:.0f} s"
        shown(name, given, answer, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def shown(
    name: str, given: dict[str, str], answer: str, cpu_s: float, wall_s: float, peak_mb: float
) -> None:
    """Print one line."""
    words = " ".join(f"{key}={value}" for key, value in given.items())
    print(f"{name:17} {words:45} {answer:10} {cpu_s:8.2f} {wall_s:8.2f} {peak_mb:7.0f}", flush=True)


def ask_spark(root: Path, days: int, hosts: int, timeout_s: float) -> None:
    """Print what questions that claim Spark cost it, in one session on two threads."""
    from bufdb.errors import BufdbError
    from bufdb.spark import session, tables

    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 3g pyspark-shell")
    known = catalogue.Catalogue([resources.query_folder()])
    opened = session.start("local[2]")
    jvm = opened.sparkContext._gateway.proc.pid
    print("Spark local[2]: query, parameters, rows, CPU s with its JVM, wall s, its peak MB")
    for name, given in asked(days, hosts):
        query = known.find(name)
        if "spark" not in query.engines:
            continue
        bound = execute.bind(query, given)
        began, used = time.monotonic(), cpu_of(jvm) + time.process_time()
        is_done = threading.Event()
        watch = (is_done, timeout_s, opened.sparkContext.cancelAllJobs)
        threading.Thread(target=cancel_late, args=watch, daemon=True).start()
        try:
            tables.register(opened, str(root), query.sql, execute.runs_asked(bound))
            found = f"{len(tables.answer(opened, query, bound).rows)} rows"
        except BufdbError as error:
            is_late = time.monotonic() - began > timeout_s
            found = f"stopped after {timeout_s:.0f} s" if is_late else str(error)[:100]
        is_done.set()
        took = cpu_of(jvm) + time.process_time() - used
        shown(name, given, found, took, time.monotonic() - began, peak_of(jvm))
    opened.stop()


def cancel_late(is_done: threading.Event, timeout_s: float, cancel: Callable[[], None]) -> None:
    """Cancel what is not done in time, again and again: a query is planned while no job runs."""
    is_late = not is_done.wait(timeout_s)
    while is_late and not is_done.wait(1):
        cancel()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid: int) -> float:
    """Peak of its resident set [MB]."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def make(root: Path, run_count: int, days: int, owners_of_part: int) -> None:
    """Write a dataset of many modules."""
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder, "few.duckdb")
        database.ingest(str(few), sorted(path for path in DEMO.iterdir() if path.is_dir()))
        many = Many(few, root, owners_of_part)
        for number in range(days):
            is_last = number == days - 1
            many.day(number, run_count, OF_ALL + (OF_ONE if is_last else ()))
            print(f"{bytes_of(root) / 1e6:.0f} MB, {time.process_time():.0f} CPU s", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["real", "many", "make", "ask"])
    parser.add_argument("paths", type=Path, nargs="+", help="dumps, or the folder of the dataset")
    parser.add_argument("--modules", type=int, default=2000)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--owners-of-part", type=int, default=10_000)
    parser.add_argument("--timeout", type=float, default=300, help="of a query [s]")
    parser.add_argument("--spark", action="store_true", help="ask Spark instead, which needs Java")
    args = parser.parse_args()
    if args.what == "real":
        real(args.paths)
        return
    (root,) = args.paths
    hosts = args.modules // MODULES_OF_RUN // args.days
    if args.what != "ask":
        if root.exists():
            parser.error(f"{root} is there already")
        if args.what == "make":
            make(root, hosts, args.days, args.owners_of_part)
        else:  # apart: what this process holds counts as held by those that it starts
            command = [sys.executable, __file__, "make", str(root), "--days", str(args.days)]
            command += ["--modules", str(args.modules)]
            command += ["--owners-of-part", str(args.owners_of_part)]
            subprocess.run(command, check=True)
    for table in sorted(root.iterdir() if args.what == "make" else ()):
        number, size = len(files_below(table)), bytes_of(table) / 1e6
        print(f"{table.name:20} {number:6} files {size:9.1f} MB")
    if args.what != "make":
        (ask_spark if args.spark else ask)(root, args.days, hosts, args.timeout)
    if args.what == "many":
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
