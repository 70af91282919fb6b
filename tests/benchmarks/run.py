"""Time `bufdb ingest`, the naive reader and the bare load, each as a whole child process.

CPU time is user + system of the child and its children, from process start to exit, so that
start-up and the checkpoint count. The contenders take turns; the best of the repetitions counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PARTS = ("-buffer-assignment", "-buffer-assignment-values", "-live-range")
SHARED = (
    "allocations",
    "instructions",
    "live_ranges",
    "modules",
    "peak_contributors",
    "positions",
    "uses",
    "values",
)
COUNT = """
import duckdb, json, sys
con = duckdb.connect(sys.argv[1], read_only=True)
tables = [row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
counts = {t: con.execute(f'SELECT count(*) FROM "{t}"').fetchone()[0] for t in sorted(tables)}
bad = "SELECT severity, code, count(*) FROM diagnostics GROUP BY ALL ORDER BY ALL"
print(json.dumps([counts, con.execute(bad).fetchall()]))
"""


@dataclass
class Measurement:
    cpu: float
    wall: float
    rss: float
    size: int


def measure(command: Sequence[str], database: Path) -> Measurement:
    """Run a child that makes a database, from nothing; any failure ends the benchmark."""
    for left in (database, database.with_name(f"{database.name}.wal")):
        left.unlink(missing_ok=True)
    log = database.with_suffix(".log")
    paths = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    with log.open("wb") as output:
        began = time.perf_counter()
        child = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | {"PYTHONPATH": paths}
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}\n{log.read_text()[-2000:]}")
    if not database.exists() or database.with_name(f"{database.name}.wal").exists():
        sys.exit(f"{' '.join(command)}: no checkpointed database")
    rss = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3 / 1.024)
    return Measurement(usage.ru_utime + usage.ru_stime, wall, rss, database.stat().st_size)


def contents(database: Path) -> tuple[dict[str, int], list[list[object]]]:
    command = [sys.executable, "-c", COUNT, str(database)]
    counts, diagnostics = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    return counts, diagnostics


def agree(counts: dict[str, dict[str, int]]) -> None:
    """Exit unless all contenders hold the same number of rows, and some."""
    for name, row_counts in counts.items():
        for other, wanted in counts.items():
            tables = SHARED if "naive" in (name, other) else sorted(wanted)
            wrong = [
                f"{t} {row_counts.get(t)}/{wanted.get(t)}"
                for t in tables
                if row_counts.get(t) != wanted.get(t)
            ]
            if wrong:
                sys.exit(f"{name} and {other} differ in rows: {', '.join(wrong)}")
        if not row_counts["values"] or not row_counts["modules"]:
            sys.exit(f"{name} made no rows")


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    model = names[0].partition(": ")[2] if names else platform.processor()
    versions = []
    for package in ("duckdb", "numpy", "nanoarrow", "pyarrow"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} absent")
    return (
        f"{model}, {os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()} "
        f"{platform.machine()}, load {load:.1f}; Python {platform.python_version()}, "
        f"{', '.join(versions)}"
    )


def bufdb_command() -> list[str]:
    """Return the command of this Python's bufdb, which keeps its bytecode as an installed one does.

    Compiling all modules again would take 0.2 s of each start.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    installed = Path(sys.executable).with_name("bufdb")
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-c", "from bufdb.cli import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path, help="directory of dumps, as make_inputs.py makes")
    parser.add_argument("-n", "--repetitions", type=int, default=3)
    parser.add_argument("--contenders", default="bufdb,naive,bare", help="bare needs bufdb")
    parser.add_argument("--ingest-options", default="--memory-limit 256MB")
    args = parser.parse_args()
    chosen = args.contenders.split(",")
    if set(chosen) - {"bufdb", "naive", "bare"} or ("bare" in chosen and "bufdb" not in chosen):
        parser.error("--contenders takes bufdb, naive and bare; bare needs bufdb")
    files = [f for part in PARTS for f in args.input.rglob(f"*{part}.txt")]
    text = sum(file.stat().st_size for file in files) / 1e6
    if not files:
        parser.error(f"no dumps in {args.input}")
    with tempfile.TemporaryDirectory(prefix="bufdb-bench-") as work:
        compare(args, chosen, files, text, Path(work))


def compare(
    args: argparse.Namespace, chosen: list[str], files: list[Path], text: float, work: Path
) -> None:
    print(machine())
    print(f"{args.input}: {text:.1f} MB in {len(files)} files, {args.repetitions} repetitions\n")
    for file in files:
        with file.open("rb") as stream:
            while stream.read(1 << 22):
                pass
    databases = {name: work / f"{name}.duckdb" for name in ("bufdb", "naive", "bare")}
    bufdb, naive, bare = (str(database) for database in databases.values())
    reader, loader = (
        [sys.executable, str(HERE / f"{n}.py")] for n in ("naive_reader", "bare_load")
    )
    source, parquet = str(args.input), str(work / "parquet")
    options = args.ingest_options.split()
    commands = {
        "bufdb": [*bufdb_command(), "ingest", source, "--db", bufdb, *options],
        "naive": [*reader, source, "--db", naive],
        "bare": [*loader, "load", parquet, bare],
    }
    runs: dict[str, list[Measurement]] = {name: [] for name in chosen}
    counts = {}
    diagnostics: list[list[object]] = []
    for turn in range(args.repetitions):
        for name in (name for name in commands if name in chosen):
            if name == "bare" and turn == 0:
                subprocess.run([*loader, "export", bufdb, parquet], check=True)
            runs[name].append(measure(commands[name], databases[name]))
            counts[name], own_diagnostics = contents(databases[name])
            diagnostics = own_diagnostics if name == "bufdb" else diagnostics
        agree(counts)
    print_table(runs, text)
    first = counts[chosen[0]]
    print(f"\nrows: {', '.join(f'{table} {first[table]:,}' for table in first if first[table])}")
    for severity, code, number in diagnostics:
        print(f"diagnostics: {severity} {code} {number}")


def print_table(runs: dict[str, list[Measurement]], text: float) -> None:
    best = {name: min(m.cpu for m in measured) for name, measured in runs.items()}
    print(
        "| contender | MB/CPU-s | CPU s (best, worst) | wall s (best) | peak RSS MB | database MB "
        "(of text) | CPU / naive | CPU / bare |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, measured in runs.items():
        ratios = [f"{best[name] / best[o]:.2f}" if o in best else "-" for o in ("naive", "bare")]
        size = measured[-1].size / 1e6
        cells = [
            name,
            f"{text / best[name]:.1f}",
            f"{best[name]:.2f}, {max(m.cpu for m in measured):.2f}",
            f"{min(m.wall for m in measured):.2f}",
            f"{max(m.rss for m in measured):.0f}",
            f"{size:.1f} ({size / text:.1%})",
            *ratios,
        ]
        print(f"| {' | '.join(cells)} |")
    if "naive" in best and "bufdb" in best:
        print(f"\nbufdb takes 1/{best['naive'] / best['bufdb']:.1f} of the naive reader's CPU time")


if __name__ == "__main__":
    main()
