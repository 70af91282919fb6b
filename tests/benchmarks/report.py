"""Seconds and bytes of a report: of a module of 100,000 values in one arena, and of a database.

    python report.py [--values 100000] [--db DATABASE …]

Processor time is user and system of the whole command, start-up included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

INCOMPLETE = 4
"""Exit code of an ingest of a dump without its peak listing."""
SUPPORT = Path(__file__).parent.parent / "support"


def command(*words: str) -> float:
    """Processor seconds of a command of bufdb."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "bufdb", *words], check=False)
    if done.returncode not in (0, INCOMPLETE):
        raise SystemExit(done.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(db: str, folder: str) -> None:
    """Write a report and say what it took."""
    page = Path(folder) / "report.html"
    seconds = command("report", "--db", db, "-o", str(page))
    print(f"{db}: {seconds:.1f} s, {page.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--db", action="append", default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.values:
            sys.path.insert(0, str(SUPPORT))
            import one_arena

            one_arena.write(Path(folder) / "dumps", given.values)
            db = f"{folder}/{given.values}.duckdb"
            command("ingest", f"{folder}/dumps", "--run", "big", "--db", db)
            report(db, folder)
        for db in given.db:
            report(db, folder)


if __name__ == "__main__":
    main()
