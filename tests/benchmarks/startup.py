"""CPU time that commands take from start to end, against `import duckdb` in the same run.

    python tests/benchmarks/startup.py [--rounds 10]

Over a database of `data/demo` (15 modules). Commands take turns, and the least of each counts, so
that what else the machine does disturbs little. Bytecode is compiled before, as in an installation.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUFDB = [sys.executable, "-P", "-m", "bufdb"]
TARGETS = {"summary": 3.0, "query": 2.0}
"""Times `import duckdb`, at most."""


def cpu(command: list[str], environment: dict[str, str]) -> float:
    """Return the CPU time of a command and what it starts [s]."""
    with Path(os.devnull).open("w") as nothing:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=nothing, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {status}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        environment |= {"PYTHONPYCACHEPREFIX": f"{folder}/pyc", "PYTHONPATH": str(ROOT)}
        db = f"{folder}/demo.duckdb"
        ingest = [*BUFDB, "ingest", "data/demo", "--run-from-dir", "--db", db, "-q"]
        subprocess.run(ingest, env=environment, cwd=ROOT, check=True)
        commands = {
            "python": [sys.executable, "-c", ""],
            "import duckdb": [sys.executable, "-c", "import duckdb"],
            "--help": [*BUFDB, "--help"],
            "query --help": [*BUFDB, "query", "--help"],
            "summary": [*BUFDB, "summary", "--db", db],
            "summary --run": [*BUFDB, "summary", "--run", "gpu_b8", "--db", db],
            "query": [*BUFDB, "query", "top-temps", "--db", db],
            "query peak --run": [*BUFDB, "query", "peak", "--run", "gpu_b8", "--db", db],
            "sql": [*BUFDB, "sql", "SELECT count(*) FROM modules", "--db", db],
        }
        for command in commands.values():
            cpu(command, environment)
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(rounds):
            for name, command in commands.items():
                best[name] = min(best[name], cpu(command, environment))
    print(f"{'command':18} {'CPU s':>6} {'ratio':>6} {'target':>6}")
    for name, seconds in best.items():
        target = TARGETS.get(name, "")
        print(f"{name:18} {seconds:6.3f} {seconds / best['import duckdb']:6.2f} {target:>6}")


if __name__ == "__main__":
    main()
