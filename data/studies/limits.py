"""How soon `bufdb fit` answers one limit of a program after the other.

    python limits.py [--count 10] [--target gpu:h100] [--keep FILE] [--write]

The program is `programs/llama.py`: 32 layers of the shape of Llama 3 8B in a scan. Limits are at
equal distances between what the plan that saves nothing needs and what the program needs as
written, in an order in which none is next to the one before. Each is a command of its own; what is
kept for later ones is in a folder that is empty at first. CPU seconds are those of all processes of
a command, without those within compilations. Results are kept in FILE as they come; `limits.md` is
written of it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = "programs/llama.py:step"
MIB = 2**20
FIRST = 3
"""Limits after which a compilation or two are enough."""
COUNTED = """
import os
from pathlib import Path
from bufdb.capture import dump

original = dump.compile_into

def used():
    return sum(os.times()[:4])

def compile_into(*arguments):
    begin = used()
    refusal = original(*arguments)
    with Path({file!r}).open("a") as opened:
        opened.write(f"{{used() - begin}}\\n")
    return refusal

dump.compile_into = compile_into
"""
"""What notes the CPU seconds of each compilation, in whichever process it is made, with those of
the assemblers that XLA runs; one that is kept ends before that."""


def turns(count):
    """The numbers up to a count, none next to the one before where that is possible."""
    step = max(one for one in range(1, max(count // 2, 1) + 1) if is_coprime(one, count))
    return [number * step % count for number in range(count)]


def is_coprime(one, other):
    while other:
        one, other = other, one % other
    return one == 1


class Bench:
    """The program for a target, with a folder of what is kept from one command to the next."""

    def __init__(self, target, folder):
        self.target, self.folder, self.seconds = target, folder, folder / "seconds"
        (folder / "sitecustomize.py").write_text(COUNTED.format(file=str(self.seconds)))

    def ask(self, limit, *more):
        """The answer for a limit, and what it took."""
        self.seconds.write_text("")
        db = self.folder / "runs.duckdb"
        command = [sys.executable, "-m", "bufdb", "fit", PROGRAM, "--args", "args()"]
        command += ["--target", self.target, "--limit", f"{limit}B", "--db", str(db), *more]
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        own = {"BUFDB_CACHE": str(self.folder / "kept"), "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        # As where a package is installed: modules are not translated again for each command.
        own |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.folder / "modules")}
        begin, before = time.monotonic(), used()
        done = subprocess.run(
            [*command, "--format", "json", "--quiet"],
            cwd=HERE, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        compiled = [float(one) for one in self.seconds.read_text().split()]
        return json.loads(done.stdout), {
            "compiles": len(compiled),
            "compile_seconds": sum(compiled),
            "seconds": used() - before - sum(compiled),
            "waited": time.monotonic() - begin,
        }


def used():
    """CPU seconds of the processes that this one has waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def measured(target, count, known, save):
    """Ask for each limit that is not known, in turn; an earlier folder would know its plans."""
    with tempfile.TemporaryDirectory(prefix="limits-") as name:
        bench = Bench(target, Path(name))
        if "written" not in known:
            answer, _ = bench.ask(1, "--budget-compiles", "1")
            needs = [row["need_bytes"] for row in answer["plans"] if row["is_compiled"]]
            known |= {"written": answer["as_written"]["need_bytes"], "least": min(needs)}
            save()
        (bench.folder / "kept").exists() and empty(bench.folder / "kept")
        low, high = known["least"], known["written"]
        for turn in turns(count):
            limit = low + (high - low) * turn // count
            answer, row = bench.ask(limit)
            best = next((one for one in answer["plans"] if one["rank"] == answer["best"]), None)
            row |= {"limit": limit, "traces": answer["trace_count"]}
            row["asked"] = answer["compile_count"]
            if best is not None:
                row |= {"need": best["need_bytes"], "extra": best["extra_work_ratio"]}
                row |= {"verified": best["is_verified"], "host": best["offloaded_bytes"]}
                row["bytes"] = best["extra_accessed_ratio"]
            known.setdefault("rows", []).append(row)
            save()


def empty(folder):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def percent(ratio):
    return "" if ratio is None else f"{ratio:+.1%}"


def size(number):
    return "" if number is None else f"{number / MIB:,.0f}"


PAGE = """# One limit after the other

Written by `limits.py` with jax {jax}, ahead of time for {target}: `{program}`, a training step of
the shape of Llama 3 8B with 32 layers in a scan, needs {written} MiB as written. Each row is a
command of its own, in the order in which they were asked. Compilations are those that XLA made, the
patched files' among them; used are these and those that an earlier row made. CPU seconds are those
of all processes of the command beyond compilations, on a machine that others shared; those of the
assemblers that XLA runs (ptxas) are of its compilations.

{total}

{rows}
"""
HEAD = (
    "| limit | needs | products | bytes | to the host | proved | compilations | used | CPU s "
    "| CPU s compiling |",
    "|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|",
)


def page(known, target):
    rows = known["rows"]
    lines = [*HEAD]
    for row in rows:
        proved = "" if "need" not in row else "yes" if row["verified"] else "no"
        cells = [size(row["limit"]), size(row.get("need")) or "nothing fits"]
        cells += [percent(row.get("extra")), percent(row.get("bytes"))]
        cells += [size(row.get("host")) if row.get("host") else "", proved, row["compiles"]]
        cells += [row["asked"], f"{row['seconds']:.1f}", f"{row['compile_seconds']:.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    later = rows[FIRST:]
    total = (
        f"{len(rows)} limits: {sum(row['seconds'] for row in rows):.0f} CPU seconds beyond "
        f"compilations, {sum(row['compiles'] for row in rows)} compilations; after the first "
        f"{FIRST} at most {max((row['compiles'] for row in later), default=0)} a limit."
    )
    return PAGE.format(
        jax=version("jax"), target=target, program=PROGRAM, total=total,
        written=size(known["written"]), rows="\n".join(lines),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--target", default="gpu:h100")
    parser.add_argument("--keep", type=Path, help="file for results")
    parser.add_argument("--write", action="store_true", help="run nothing, write limits.md")
    options = parser.parse_args()
    keep = options.keep or Path(tempfile.mkdtemp()) / "limits.json"
    known = json.loads(keep.read_text()) if keep.exists() else {}

    def save():
        keep.write_text(json.dumps(known, indent=1))
        print(known.get("rows", [{}])[-1], file=sys.stderr, flush=True)

    if not options.write:
        known.pop("rows", None)
        measured(options.target, options.count, known, save)
    (HERE / "limits.md").write_text(page(known, options.target))


if __name__ == "__main__":
    main()
