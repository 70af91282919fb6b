"""What questions cost in a database of many modules: CPU and the most memory of each, as a process.

Every saved query about one run (about two, where it compares two), and with --all about every run;
then `bufdb summary` and `bufdb diff` of them, and with --check `bufdb check`. many_runs.py makes
the database.

    python scale.py DATABASE --run v1_0000 --other v2_0001
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from run import bufdb_command, machine

from bufdb import resources
from bufdb.query import catalogue


def questions(args: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of each question."""
    for query in catalogue.Catalogue([resources.query_folder()]).load_all():
        params = {param.name for param in query.params}
        asked = ["query", query.name]
        if "new" in params:
            asked += ["-p", f"base={args.run}", "-p", f"new={args.other}"]
        elif "run" in params and not args.all:
            asked += ["--run", args.run]
        yield query.name, asked
    yield "(summary)", ["summary", "--run", args.run]
    yield "(diff)", ["diff", args.run, args.other]
    if args.check:
        # The inputs' tree is its root alone.
        yield "(check)", ["check", "--quiet", "--skip", "peak-tree"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("names", nargs="*", help="questions; default: all")
    parser.add_argument("--run", required=True, help="the run that is asked about")
    parser.add_argument("--other", required=True, help="the run that it is compared with")
    parser.add_argument("--all", action="store_true", help="ask about all runs instead of one")
    parser.add_argument("--check", action="store_true", help="bufdb check too, which takes minutes")
    parser.add_argument("--memory-limit", help="for each question")
    args = parser.parse_intermixed_args()
    print(machine())
    print("\n| question | CPU s | peak MB |\n|---|--:|--:|")
    env = os.environ | ({"BUFDB_MEMORY_LIMIT": args.memory_limit} if args.memory_limit else {})
    for name, asked in questions(args):
        if args.names and name not in args.names:
            continue
        command = [*bufdb_command(), *asked, "--db", str(args.database)]
        child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
        )
        assert child.stderr is not None
        said = child.stderr.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        cpu = usage.ru_utime + usage.ru_stime
        failed = f" exit {child.returncode}: {said[-200:]!r}" if child.returncode else ""
        print(f"| {name} | {cpu:.2f} | {peak:.0f} |{failed}", flush=True)


if __name__ == "__main__":
    main()
