"""Time every saved query on a database, each as a whole child process: `bufdb query NAME`."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from run import ROOT, bufdb_command, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("names", nargs="*", help="default: every file in queries/")
    parser.add_argument("-n", "--repetitions", type=int, default=5)
    parser.add_argument("--bufdb", nargs="+", help="command instead of the bufdb of this Python")
    args = parser.parse_args()
    if not args.database.exists():
        parser.error(f"no database {args.database}")
    names = args.names or sorted(
        file.stem.replace("_", "-") for file in (ROOT / "queries").rglob("*.sql")
    )
    if not names:
        parser.error("no saved query found")
    paths = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    env = os.environ | {"PYTHONPATH": paths}
    print(machine())
    print(f"{args.database}: {args.database.stat().st_size / 1e6:.1f} MB\n")
    print("| query | first s | best s | worst s | lines |\n|---|---|---|---|---|")
    failures = []
    for name in names:
        command = [*(args.bufdb or bufdb_command()), "query", name, "--db", str(args.database)]
        times = []
        for _ in range(args.repetitions):
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
            times.append(time.perf_counter() - began)
            if done.returncode != 0:
                failures.append(f"{name}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
                break
        else:
            lines = done.stdout.count("\n")
            print(f"| {name} | {times[0]:.3f} | {min(times):.3f} | {max(times):.3f} | {lines} |")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
