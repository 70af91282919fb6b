"""Time replacing every module of a run against first ingesting it, alternating in one process.

A replaced module costs at most LIMIT times a new one: what is deleted is deleted by sets.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bufdb.ingest.ingest import ingest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.5


def make(folder: Path, modules: int, base: Path) -> None:
    """Copy the modules of a dump directory under new numbers, `modules` in all."""
    folder.mkdir()
    stems = sorted({path.name.partition(".")[0] for path in base.glob("module_*")})
    for number in range(modules):
        stem = stems[number % len(stems)]
        for path in base.glob(f"{stem}.*"):
            if path.is_file():
                shutil.copy(path, folder / path.name.replace(stem, f"module_{number:04d}", 1))


def change(folder: Path) -> None:
    """Make the files of every module other ones, of the same content."""
    for path in folder.glob("*-live-range.txt"):
        path.write_text(path.read_text() + "\n")


def timed(db: Path, folder: Path) -> tuple[float, int]:
    began = time.perf_counter()
    summary = ingest(str(db), [folder])
    return time.perf_counter() - began, summary.replaced_count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--base", type=Path, default=ROOT / "data" / "demo" / "cpu_b8")
    given = parser.parse_args()
    first, again = [], []
    for _ in range(given.repeat):
        with tempfile.TemporaryDirectory() as name:
            folder, db = Path(name, "dumps"), Path(name, "t.duckdb")
            make(folder, given.modules, given.base)
            first.append(timed(db, folder)[0])
            change(folder)
            seconds, replaced = timed(db, folder)
            if replaced != given.modules:
                sys.exit(f"{replaced} of {given.modules} modules were replaced")
            again.append(seconds)
    ratio = min(again) / min(first)
    print(f"first {min(first):.2f} s, replaced {min(again):.2f} s: {ratio:.2f} times")
    if ratio > LIMIT:
        sys.exit(f"expected at most {LIMIT} times")


if __name__ == "__main__":
    main()
