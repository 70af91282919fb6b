"""Measure how much wall time `bufdb ingest --jobs N` saves, compared with what the machine allows.

A second core is not always there: other programs, other guests of the host. So each turn also runs
two independent ingests at once: what they gain over one after the other is what two cores gave in
that minute, 2.0 where nothing else runs. The gain of `--jobs 2` is scaled by it: a gain of 1.2
where two processes gain 1.5 is 1.6 on two whole cores. All run on the same cores, by turns, after
the files were read once; the middle one of the turns counts.

    python jobs.py        # makes its inputs; takes about four minutes on a quiet machine

Exits with 1 if a gain is below its goal, or rows differ.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from run import HERE, bufdb_command, contents, machine


@dataclass(frozen=True)
class Input:
    options: tuple[str, ...]
    """Options of make_inputs.py."""
    turns: int
    goal: float
    """Required speedup of two jobs on two whole cores."""


INPUTS = {
    "small": Input(("--kind", "small", "--modules", "2000"), 5, 1.2),
    "many_300": Input(("--kind", "many", "--mb", "220", "--modules", "300", "--era", "C"), 5, 1.35),
    "many_1000": Input(("--kind", "many", "--mb", "1000", "--era", "C"), 2, 1.6),
    "few": Input(("--kind", "small", "--modules", "100"), 5, 0.95),
    "one_100": Input(("--kind", "one", "--mb", "100"), 3, 0.95),
}
"""`few` must not become slower but by noise, nor a single module."""


class Bench:
    """Ingests of one input, all on the same cores."""

    def __init__(self, folder: Path, dumps: Path, cores: set[int]) -> None:
        self.folder, self.dumps, self.cores = folder, dumps, cores
        self.number = 0

    def begin(self, jobs: int) -> tuple[subprocess.Popen[bytes], Path]:
        self.number += 1
        db = self.folder / f"{self.number}.duckdb"
        command = [*bufdb_command(), "ingest", str(self.dumps), "--db", str(db)]
        options = ["--jobs", str(jobs), "--memory-limit", "256MB", "--quiet"]
        pin = (lambda: os.sched_setaffinity(0, self.cores)) if self.cores else None
        process = subprocess.Popen([*command, *options], preexec_fn=pin, stderr=subprocess.DEVNULL)
        return process, db

    def seconds(self, jobs: int, copies: int = 1) -> float:
        """Wall time of some ingests that run at once."""
        began = time.perf_counter()
        started = [self.begin(jobs) for _ in range(copies)]
        for process, _ in started:
            if process.wait() != 0:
                sys.exit(f"an ingest of {self.dumps} with --jobs {jobs} ended with an error")
        taken = time.perf_counter() - began
        for _, db in started:
            db.unlink()
        return taken

    def rows(self, jobs: int) -> object:
        process, db = self.begin(jobs)
        process.wait()
        stored = contents(db)
        db.unlink()
        return stored

    def memory(self, jobs: int) -> float:
        """Peak of what all processes of an ingest have in memory, what they share once [MB]."""
        process, db = self.begin(jobs)
        peak = 0.0
        watch = threading.Thread(target=process.wait)
        watch.start()
        while watch.is_alive():
            peak = max(peak, resident([process.pid, *children(process.pid)]))
            time.sleep(0.02)
        db.unlink()
        return peak


def children(pid: int) -> list[int]:
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in pids]


def resident(pids: list[int]) -> float:
    """Return the memory of some processes, with shared memory counted once [MB].

    Memory files count in full as written: a process that only writes them maps none of it.
    """
    total, files = 0, dict[int, int]()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            private = ("Pss_Anon:", "Pss_File:")
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(private))
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(file.readlink()).startswith("/memfd:"):
                        status = file.stat()
                        files[status.st_ino] = status.st_blocks * 512
    return (total + sum(files.values())) / 1e6


def measure(name: str, bench: Bench, jobs: int) -> bool:
    """Print a line of the table; whether the goal is reached and the rows are the same."""
    bench.seconds(1)  # reads the files once
    gains, whole, scaled, ones = [], [], [], []
    goal = INPUTS[name].goal
    for _ in range(INPUTS[name].turns):
        one, two, some = bench.seconds(1), bench.seconds(1, 2), bench.seconds(jobs)
        gains.append(one / some)
        whole.append(2 * one / two)
        scaled.append(2 * gains[-1] / whole[-1])
        ones.append(one)
    is_same = bench.rows(1) == bench.rows(jobs)
    memory = [f"{bench.memory(n):.0f}" for n in (1, jobs)]
    middle = statistics.median
    cells = [
        name, f"{min(ones):.2f}", f"{middle(gains):.2f}", f"{middle(whole):.2f}",
        f"{middle(scaled):.2f}", f"{goal:.2f}", *memory, "the same" if is_same else "DIFFERENT",
    ]  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)
    return is_same and middle(scaled) >= goal


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(INPUTS)}; default: all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--inputs", type=Path, help="where inputs of these names are, or are kept")
    args = parser.parse_args()
    names = args.names or list(INPUTS)
    if set(names) - INPUTS.keys():
        parser.error(f"there are {', '.join(INPUTS)}")
    cores: set[int] = set()
    if hasattr(os, "sched_setaffinity"):
        cores = set(sorted(os.sched_getaffinity(0))[: args.jobs])
    work = Path(tempfile.mkdtemp(prefix="bufdb-jobs-"))
    good = True
    try:
        print(f"{machine()}; {len(cores) or 'all'} of them used\n")
        print(
            "| input | one job s | gain | gain of two at once | on two whole cores | goal "
            f"| MB in memory, one job | {args.jobs} jobs | rows |\n"
            "|---|--:|--:|--:|--:|--:|--:|--:|---|"
        )
        for name in names:
            dumps = (args.inputs or work) / name
            if not dumps.exists():
                make = [sys.executable, str(HERE / "make_inputs.py"), str(dumps)]
                subprocess.run([*make, *INPUTS[name].options], check=True, capture_output=True)
            good &= measure(name, Bench(work, dumps, cores), args.jobs)
            if args.inputs is None:
                shutil.rmtree(dumps)
    finally:
        shutil.rmtree(work)
    sys.exit(not good)


if __name__ == "__main__":
    main()
