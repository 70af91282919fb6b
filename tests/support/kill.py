"""An ingest killed at any moment leaves whole modules, and the next ingest makes all well.

A real `bufdb ingest` of many small runs is killed (SIGKILL) at a random moment, with one job or
two, into a new database or one that holds other versions of the same modules. After that every
module in the database has the rows of an undisturbed ingest (of the old or of the new version), no
row belongs to a module that is not there, and a second ingest gives the database that an
undisturbed one gives.

    python tests/support/kill.py --kills 100
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
from places import DEMO

from bufdb.ingest.rows import MODULE_TABLES

SCRIPT = (
    "from bufdb.ingest import processes as p; p.FEW_BYTES = 0; "  # so that others read, too
    "from bufdb.cli import main; main()"
)
COPIES = 3
"""How often the script ingests each demo run, as separate runs: a commit follows each."""
TIMES = ("dumped_at", "ingested_at")
"""Columns that differ from one ingest to the next."""

Rows = dict[str, tuple[int, int]]
"""Number of rows and sum of their hashes, by table."""


@dataclass(frozen=True)
class State:
    """Contents of a database."""

    tables: Rows
    modules: dict[tuple[str, str], Rows]
    """Rows by run and key."""
    strays: dict[str, int]
    """Rows of modules that are not there, by table."""


def state_of(db: Path) -> State:
    """The content of a database as the next process finds it."""
    with duckdb.connect(str(db)) as con:
        columns: dict[str, list[str]] = {}
        query = (
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND "
            "table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
        )
        for table, column in con.execute(query).fetchall():
            if column not in TIMES:
                columns.setdefault(table, []).append(f'"{column}"')
        tables = {}
        for table, names in columns.items():
            query = f'SELECT count(*), sum(hash({", ".join(names)})) FROM "{table}"'
            ((count, total),) = con.execute(query).fetchall()
            tables[table] = (count, int(total or 0))
        there = (
            "SELECT module_id, run_name, module_key FROM modules"
            if tables
            else "SELECT 0, '', '' LIMIT 0"
        )
        names_of = {m: (run, key) for m, run, key in con.execute(there).fetchall()}
        modules: dict[tuple[str, str], Rows] = {name: {} for name in names_of.values()}
        strays: dict[str, int] = {}
        for table in set(MODULE_TABLES) & set(tables):
            query = (
                f"SELECT module_id, count(*), sum(hash({', '.join(columns[table])})) "
                f'FROM "{table}" WHERE module_id IS NOT NULL GROUP BY module_id'
            )
            for module_id, count, total in con.execute(query).fetchall():
                if module_id in names_of:
                    modules[names_of[module_id]][table] = (count, int(total))
                else:
                    strays[table] = strays.get(table, 0) + count
        return State(tables, modules, strays)


class Bench:
    """Dumps in two versions, and what undisturbed ingests of them give."""

    def __init__(self, folder: Path, copies: int = COPIES) -> None:
        self.folder = folder
        self.new, self.old = folder / "new", folder / "old"
        for root in (self.new, self.old):
            for run in sorted(path for path in DEMO.iterdir() if path.is_dir()):
                for copy in range(copies):
                    shutil.copytree(run, root / f"{run.name}_{copy}")
        for number, path in enumerate(sorted(self.old.rglob("*-buffer-assignment.txt"))):
            if number % 2:  # the other half does not change
                path.write_bytes(
                    path.read_bytes().replace(b"allocation 0: size ", b"allocation 0: size 1")
                )
        self.base = folder / "base.duckdb"
        self._whole(self.old, self.base)
        self.expected: dict[bool, State] = {}
        self.seconds: dict[bool, float] = {}
        for over_old in (False, True):
            db = folder / f"undisturbed_{over_old}.duckdb"
            if over_old:
                shutil.copy(self.base, db)
            began = time.monotonic()
            self._whole(self.new, db)
            self.seconds[over_old] = time.monotonic() - began
            self.expected[over_old] = state_of(db)
        self.old_state = state_of(self.base)

    def _whole(self, root: Path, db: Path, jobs: int = 1) -> None:
        done = subprocess.run(self.command(root, db, jobs), capture_output=True, text=True)
        assert done.returncode in (0, 4), done.stderr

    def command(self, root: Path, db: Path, jobs: int) -> list[str]:
        """The ingest of all runs below a directory."""
        options = ["--run-from-dir", "--db", str(db), "--jobs", str(jobs)]
        return [sys.executable, "-c", SCRIPT, "ingest", str(root), *options]

    def kill(self, number: int) -> tuple[str | None, list[str]]:
        """Kill an ingest; how far it had come (None if it was done before), and what is wrong."""
        rng = random.Random(number)
        jobs, over_old = 1 + number % 2, bool(number // 2 % 2)
        db = self.folder / f"killed_{number}.duckdb"
        if over_old:
            shutil.copy(self.base, db)
        process = subprocess.Popen(
            self.command(self.new, db, jobs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        )
        try:
            process.wait(rng.uniform(0.02, 1.1) * self.seconds[over_old])
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            self.remove(db)
            return None, []
        title = f"kill {number} (jobs {jobs}, {'over an older database' if over_old else 'new'})"
        wrong = []
        stage = "nothing stored"
        if db.exists():
            left = state_of(db)
            wrong = self.not_whole(left, over_old)
            stored = [
                m for m in left.modules if left.modules[m] == self.expected[over_old].modules.get(m)
            ]
            stage = (
                f"{len(stored)} modules of {len(self.expected[over_old].modules)} as undisturbed"
            )
        self._whole(self.new, db, jobs)
        again, expected = state_of(db), self.expected[over_old]
        tables = [t for t in expected.tables if expected.tables[t] != again.tables.get(t)]
        if tables or again.strays:
            wrong.append(f"a second ingest differs in {', '.join(tables)}; strays {again.strays}")
        self.remove(db)
        return stage, [f"{title}: {what}" for what in wrong]

    def not_whole(self, left: State, over_old: bool) -> list[str]:
        """Modules that are neither as before nor as after."""
        wrong = [f"{n} rows of no module in {table}" for table, n in left.strays.items()]
        expected = self.expected[over_old].modules
        for name, rows in left.modules.items():
            wanted = [expected[name]] + ([self.old_state.modules[name]] if over_old else [])
            if rows not in wanted:
                tables = [t for t in wanted[0] if wanted[0][t] != rows.get(t)]
                wrong.append(f"{'/'.join(name)} differs in {', '.join(tables)}")
        if over_old and left.modules.keys() != expected.keys():
            wrong.append(f"{len(expected) - len(left.modules)} modules are gone")
        return wrong

    def remove(self, db: Path) -> None:
        """The database and its log."""
        for path in self.folder.glob(f"{db.name}*"):
            path.unlink()


def run(bench: Bench, kills: int, first: int = 0) -> tuple[dict[str, int], list[str]]:
    """Kill a number of ingests; return how far they had come, and what was wrong."""
    stages: dict[str, int] = {}
    wrong: list[str] = []
    number, done = first, 0
    while done < kills:
        stage, faults = bench.kill(number)
        number += 1
        if stage is not None:
            done += 1
            stages[stage] = stages.get(stage, 0) + 1
            wrong += faults
        assert number < first + 20 * kills, "the ingest is done before it can be killed"
    return stages, wrong


def main() -> int:
    """Kill on demand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stages, wrong = run(Bench(Path(folder)), options.kills, options.first)
    for stage, count in sorted(stages.items()):
        print(f"{count:4d} with {stage}")
    print("\n".join(wrong))
    print(f"{options.kills} kills, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
