"""The query ranks over many ranks and snapshots: its time, and that of one scan of what it reads.

    python ranks.py account FOLDER
    python ranks.py make DIR [--ranks 10000] [--snapshots 10] [--lines 1] [--account FOLDER]
    python ranks.py ask DIR [--query ranks] [--engine duckdb|sail|spark] [--repeat 3]

`make` writes a dataset of one run, scaled from a real account: the demo program's memory profiles
(../profiles: four snapshots of a loop that leaks) and the dump of its step (../demo/cpu_b8), or
with `--account` those of a trainer. Each rank has the same processes, dumps and snapshots; arrays
grow from snapshot to snapshot. One rank grows twice as fast, one has a larger temporary, one was
killed halfway, one has no dump, and one has a fragmented pool. With `--lines N` each array is there
for N lines of Python. A CPU has no statistics of an allocator: they are made of the sums of arrays.
Stored are the tables that answers about ranks and growth read, in files of 1,000 ranks.

`account` runs such a trainer on this CPU under `bufdb capture --watch-every` and keeps its dumps
and profiles in FOLDER: a transformer of flax linen with 12 layers and AdamW, narrow, since arrays,
shapes and programs count here and not bytes (programs/scripts/linen_lm.py; a minute, needs JAX).

`ask` opens the dataset as the command line does, and prints CPU time and the peak memory of the
process, with the engine (of Spark, whose JVM is another process, the sum of both): of opening it,
of the query, and at last of one scan: of each table that the query names the maximum of each
column that it needs, read from the files, of the rows that count. `whole` is the scan of what the
same question would read without what ingest stores of profiles and shapes (live_totals,
modules.entry_hash). Each is the least of several, and the first, in which Sail's and Spark's text
is translated and Java compiled. `answer` is opening and query, which is what a command takes;
ratios are those to the two scans, and to each as a question of its own, with its opening.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bufdb import resources  # noqa: E402
from bufdb.database import definitions, store  # noqa: E402
from bufdb.dataset import layout, snapshot  # noqa: E402
from bufdb.ingest import ingest  # noqa: E402
from bufdb.query import catalogue, execute  # noqa: E402

RUN, DAY, PART = "job7", "2026-01-31", 1 << 40
BLOCK = 1000
"""Ranks in a file."""
TAKEN = 4
"""Most snapshots of the account that are scaled, the last ones."""
TRAINER = ("--layers", "12", "--heads", "8", "--steps", "300")
ODD = {"leaking": 17, "larger": 42, "killed": 123, "bare": 256, "fragmented": 512}
"""Ranks that differ, modulo the number of ranks."""
OF_PROFILES = ("live_profiles", "live_arrays", "live_frames", "live_programs")
OF_MODULES = ("memory_sums", "occupied_peaks", "allocations", "row_counts", "modules")
GROWN = "(total_bytes * ({most} + s * CASE WHEN rank = {leaking} THEN 2 ELSE 1 END) // {most})"
STATISTICS = """
SELECT
  '{run}' AS run_name, {profile} AS profile_name, device, statistic_name,
  CASE statistic_name
    WHEN 'bytes_limit' THEN 1 << 30
    WHEN 'bytes_in_use' THEN held
    WHEN 'peak_bytes_in_use' THEN held + (8 << 20)
    WHEN 'pool_bytes' THEN 1 << 30
    ELSE ((1 << 30) - held) // CASE WHEN rank = {fragmented} THEN 4 ELSE 1 END
  END::BIGINT AS statistic_value,
  0 AS slack_bytes, {owner}
FROM (
  SELECT rank, s, device, sum({grown})::BIGINT AS held
  FROM every_array JOIN moments USING (profile_name)
  GROUP BY rank, s, device
)
CROSS JOIN (
  SELECT unnest([
    'bytes_limit', 'bytes_in_use', 'peak_bytes_in_use', 'pool_bytes', 'largest_free_block_bytes'
  ]) AS statistic_name
)
ORDER BY rank, s
"""


def account(folder: Path) -> None:
    """Run the trainer; its dumps and profiles are those of a process of a job."""
    training = [sys.executable, HERE / "programs" / "scripts" / "linen_lm.py", *TRAINER]
    capture = [sys.executable, "-m", "bufdb", "capture", "--watch-every", "1s"]
    capture += ["--keep-dumps", folder / "rank-0"]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as stored:
        subprocess.run(
            [*capture, "--db", f"{stored}/account.duckdb", "--", *training],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            check=True,
        )


def make(
    root: Path, rank_count: int, snapshot_count: int, line_count: int, trained: Path | None
) -> None:
    """Write the dataset.

    Args:
        root: where.
        rank_count: its processes.
        snapshot_count: profiles of each.
        line_count: lines of Python that made each array.
        trained: folder of `account`; None takes the demo program.
    """
    odd = {name: rank % rank_count for name, rank in ODD.items()}
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "real.duckdb"
        job = trained or _demo_job(Path(folder) / "job")
        ingest.ingest(str(database), [job], run=RUN)
        with duckdb.connect(str(database)) as con:
            # One that is taken while a step runs, which has its arguments, has few arrays or
            # unknown ones.
            con.execute(
                "CREATE TEMP TABLE taken AS SELECT profile_name, row_number() OVER ("
                "ORDER BY snapshot_ordinal) - 1 AS place FROM (FROM live_profiles "
                "JOIN live_totals USING (profile_name) "
                "WHERE moment = 'snapshot' AND shapes_unknown_reason IS NULL "
                "AND array_count > (SELECT max(array_count) FROM live_totals) // 10 "
                "ORDER BY snapshot_ordinal DESC LIMIT ?)",
                [TAKEN],
            )
            con.execute(
                "CREATE TEMP TABLE every_array AS SELECT live_arrays.* REPLACE "
                "(stack_frame_id + 1000 * line AS stack_frame_id) "
                "FROM live_arrays CROSS JOIN (SELECT unnest(range(?)) AS line)",
                [line_count],
            )
            for first in range(0, rank_count, BLOCK):
                last = min(first + BLOCK, rank_count)
                con.execute(
                    "CREATE OR REPLACE TEMP TABLE ranks AS SELECT unnest(range(?, ?)) AS rank",
                    [first, last],
                )
                _write_block(con, root, first // BLOCK, snapshot_count, odd)
            _write_run(con, root)
    size = sum(file.stat().st_size for file in root.rglob("*.parquet"))
    print(f"{rank_count} ranks, {snapshot_count} snapshots each: {size / 1e6:.1f} MB of Parquet")


def _demo_job(folder: Path) -> Path:
    """Return a folder with the dump and the profiles of the demo program as those of a process."""
    process = folder / "rank-0"
    process.mkdir(parents=True)
    for file in (HERE.parent / "profiles").glob("cpu_b8-*"):
        shutil.copy(file, process / file.name.replace("cpu_b8", "memory"))
    for file in (HERE.parent / "demo" / "cpu_b8").glob("*train_step*"):
        shutil.copy(file, process)
    return folder


def _write_block(
    con: duckdb.DuckDBPyConnection, root: Path, number: int, most: int, odd: dict[str, int]
) -> None:
    con.execute(
        "CREATE OR REPLACE TEMP TABLE moments AS "
        "SELECT rank, s, profile_name FROM ranks CROSS JOIN (SELECT unnest(range(?)) AS s) "
        "JOIN taken ON place = s * (SELECT count(*) FROM taken) // ? "
        "WHERE NOT (rank = ? AND s > ? // 2)",
        [most, most, odd["killed"], most],
    )
    run_id = layout.run_key(RUN, "made")
    profile = "printf('rank-%05d/memory-%06d.prof', rank, s)"
    grown = GROWN.format(most=most, **odd)
    owner = f"{run_id} AS owner_id, 0 AS owner_version, {PART} AS part_id"
    changed = {
        "run_name": f"'{RUN}'",
        "profile_name": profile,
        "snapshot_ordinal": "s",
        "elapsed_seconds": "60.0 * s",
        "mark": "printf('step %d', 100 * s)",
        "total_bytes": grown,
        "array_count": f"greatest(1, array_count * {grown} // total_bytes)",
    }
    for table in OF_PROFILES:
        source = "every_array" if table == "live_arrays" else table
        rows = f"{source} JOIN moments USING (profile_name) ORDER BY rank, s"
        _copy(
            con, root, table, number, f"SELECT {_cells(con, table, changed)}, {owner} FROM {rows}"
        )
    texts = {"run": RUN, "profile": profile, "owner": owner, "grown": grown, **odd}
    _copy(con, root, "allocator_statistics", number, STATISTICS.format(**texts))
    _write_totals(root, number, owner)
    _write_modules(con, root, number, odd)


def _write_totals(root: Path, number: int, owner: str) -> None:
    """Write what an ingest computes of the profiles of a block."""
    with duckdb.connect() as con:
        for table in (*OF_PROFILES, "allocator_statistics"):
            file = root / layout.part_name(table, DAY, PART, number)
            con.execute(f"CREATE VIEW {table} AS FROM '{file}'")
        for view in definitions.views("FROM derived_live_totals", comments=False).values():
            con.execute(view)
        con.execute(definitions.tables(comments=False)["live_totals"])
        con.execute("INSERT INTO live_totals BY NAME FROM derived_live_totals")
        rows = f"SELECT *, {owner} FROM live_totals ORDER BY profile_name"
        _copy(con, root, "live_totals", number, rows)


def _write_modules(
    con: duckdb.DuckDBPyConnection, root: Path, number: int, odd: dict[str, int]
) -> None:
    ((main_id,),) = con.execute(
        "SELECT module_id FROM memory_sums ORDER BY temp_bytes DESC LIMIT 1"
    ).fetchall()
    larger = (
        f"{{0}} + CASE WHEN rank = {odd['larger']} AND module_id = {main_id} "
        "THEN {0} // 4 ELSE 0 END"
    )
    changed = {
        "run_name": f"'{RUN}'",
        "module_id": "(module_id // 2 + rank)",
        "module_key": "replace(module_key, 'rank-0/', printf('rank-%05d/', rank))",
        **{name: larger.format(name) for name in ("temp_bytes", "occupied_temp_bytes")},
    }
    tables = ", ".join(f"'{table}'" for table in OF_MODULES)
    for table in OF_MODULES:
        cells = _cells(con, table, changed)
        cells += f", module_id // 2 + rank AS owner_id, 0 AS owner_version, {PART} AS part_id"
        if table == "modules":
            cells += f", FALSE AS is_removed, {store.SCHEMA_VERSION} AS schema_version"
        where = f"rank <> {odd['bare']}"
        if table == "row_counts":
            where += f" AND table_name IN ({tables})"
        rows = f"{table} CROSS JOIN ranks WHERE {where} ORDER BY rank, module_id"
        _copy(con, root, table, number, f"SELECT {cells} FROM {rows}")


def _write_run(con: duckdb.DuckDBPyConnection, root: Path) -> None:
    cells = f"{layout.run_key(RUN, 'made')} AS owner_id, 0 AS owner_version, {PART} AS part_id"
    cells += f", FALSE AS is_removed, {store.SCHEMA_VERSION} AS schema_version"
    _copy(con, root, "runs", 0, f"SELECT runs.*, {cells} FROM runs")


def _cells(con: duckdb.DuckDBPyConnection, table: str, changed: dict[str, str]) -> str:
    names = [row[0] for row in con.execute(f"DESCRIBE {table}").fetchall()]
    return ", ".join(f"({changed.get(name, name)}) AS {name}" for name in names)


def _copy(con: duckdb.DuckDBPyConnection, root: Path, table: str, number: int, sql: str) -> None:
    """Store rows as a file of the dataset, in the types of its format."""
    catalog = con.execute("SELECT current_database()").fetchall()[0][0]
    types = {**layout.columns(con, catalog)[table], **layout.extra_columns(table)}
    cells = ", ".join(
        f"{name}::{layout.stored_type(kind)} AS {name}" for name, kind in types.items()
    )
    path = root / layout.part_name(table, DAY, PART, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    con.execute(
        f"COPY (SELECT {cells} FROM ({sql})) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
    )


# -- Questions -------------------------------------------------------------------------------------


class Clock:
    """CPU time and peak memory of this process, and of Java's virtual machine if there is one."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.java: Path | None = None

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the CPU time of the block [s], the first and the least of several, and the peak [MB].

        Code that Java compiles meanwhile is counted, too.
        """
        began = self._seconds()
        yield
        seconds = round(self._seconds() - began, 3)
        self.figures.setdefault(f"{name}_first_s", seconds)
        self.figures[f"{name}_s"] = min(seconds, self.figures.get(f"{name}_s", seconds))
        self.figures[f"{name}_peak_mb"] = self._peak()

    def _seconds(self) -> float:
        seconds = time.process_time()
        if self.java is not None:
            fields = (self.java / "stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds

    def _peak(self) -> int:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self.java is not None:
            status = (self.java / "status").read_text()
            kilobytes += int(re.findall(r"VmHWM:\s*(\d+)", status)[0])
        return kilobytes // 1024


def scans(query: str, columns: layout.Columns) -> Iterator[str]:
    """Yield a SELECT for each table that a query names, which needs the columns that it needs."""
    texts = [query, *definitions.views(query, comments=False).values()]
    words = [set(re.findall(r"\w+", re.sub("--.*", "", text))) for text in texts]
    for table in sorted(layout.named(query) - layout.CONSTANT):
        near = set().union(*(some for some in words if table in some))
        cells = [
            f"max({name})"
            for name, kind in columns[table].items()
            if name in near and "[]" not in kind
        ]
        yield f"SELECT {', '.join(cells or ['count(*)'])} FROM {table}"


def ask(root: Path, name: str, engine: str, repeat: int) -> None:
    """Ask once per repetition, and scan as often; print the first and the shortest of each."""
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    without_sums = query.sql.replace("live_totals", "derived_live_totals")
    without_sums = without_sums.replace("asked_modules.entry_hash", "derived_signatures.entry_hash")
    texts = {"own": query.sql}
    if without_sums != query.sql:
        texts["whole"] = without_sums
    with store.open_empty() as con:
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        columns = layout.columns(con, catalog)
    clock = Clock()
    opened: Callable[[str], Any]
    answer: Callable[[Any], list[tuple[Any, ...]]]
    scan: Callable[[Any, str], object]
    if engine == "duckdb":
        opened = lambda sql: snapshot.open_readable(str(root), sql)  # noqa: E731
        answer = lambda con: execute.execute_query(con, query, {}).rows  # noqa: E731
        scan = lambda con, sql: con.execute(sql).fetchall()  # noqa: E731
    else:
        from bufdb.spark import session, tables

        made = session.sail() if engine == "sail" else session.start("local[2]")
        if engine == "spark":
            clock.java = Path(f"/proc/{made.sparkContext._gateway.proc.pid}")
        opened = lambda sql: tables.register(made, str(root), sql)  # noqa: E731
        answer = lambda _: tables.answer(made, query, {}).rows  # noqa: E731
        scan = lambda _, sql: made.sql(sql).collect()  # noqa: E731
    for _ in range(repeat):
        with clock.timed("open"):
            con = opened(query.sql)
        with clock.timed("query"):
            rows = answer(con)
    snapshot.COPIED_BYTES = 0
    for scanned, text in texts.items():
        for _ in range(repeat):
            with clock.timed(f"{scanned}_open"):
                con = opened(text)
            with clock.timed(scanned):
                for sql in scans(text, columns):
                    scan(con, sql)
    figures = {"engine": engine, "query": name, **clock.figures, **ratios(clock.figures, texts)}
    figures["row_count"] = len(rows)
    if name == "ranks":
        figures["odd"] = sorted({f"{row[0]} {row[18]}" for row in rows if row[21]})
    print(json.dumps(figures))


def ratios(figures: dict[str, Any], scanned: Iterable[str]) -> dict[str, float]:
    """Return the time of the answer in scans, and in scans that are asked as questions."""
    answer = figures["open_s"] + figures["query_s"]
    made = {}
    for scan in scanned:
        made[f"answer_{scan}_ratio"] = round(answer / figures[f"{scan}_s"], 2)
        with_opening = figures[f"{scan}_open_s"] + figures[f"{scan}_s"]
        made[f"answer_asked_{scan}_ratio"] = round(answer / with_opening, 2)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("make")
    made.add_argument("root", type=Path)
    made.add_argument("--ranks", type=int, default=10_000)
    made.add_argument("--snapshots", type=int, default=10)
    made.add_argument("--lines", type=int, default=1)
    made.add_argument("--account", type=Path)
    run = commands.add_parser("account")
    run.add_argument("folder", type=Path)
    asking = commands.add_parser("ask")
    asking.add_argument("root", type=Path)
    asking.add_argument("--query", default="ranks")
    asking.add_argument("--engine", choices=("duckdb", "sail", "spark"), default="duckdb")
    asking.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.command == "make":
        make(options.root, options.ranks, options.snapshots, options.lines, options.account)
    elif options.command == "account":
        account(options.folder)
    else:
        ask(options.root, options.query, options.engine, options.repeat)


if __name__ == "__main__":
    main()
