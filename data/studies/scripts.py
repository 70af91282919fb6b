"""Unmodified scripts in the layouts of public ones, asked as a user would: `programs/scripts`.

    python -m venv VENV
    VENV/bin/pip install -e 'CHECKOUT' flax optax equinox dm-haiku keras diffrax numpyro
    VENV/bin/pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt  # of jax's version
    VENV/bin/python scripts.py [--program fsdp ...] [--keep DIR]

Each script is asked with `bufdb explain`, runs as it is under `bufdb capture` with the same XLA
flags, and is asked with `bufdb fit` for three quarters of what it needs; where no plan fits, also
for an H100, ahead of time. No script has a line for bufdb. Results are kept in DIR as they come,
and not asked for again; `scripts.md` is written of what is there. An hour on two cores, no device.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import bufdb

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "programs" / "scripts"
SHARE = 0.75
"""Of the need as written that is the limit for plans."""
TARGET = "gpu:h100"
CALL = re.compile(r"call \d+ of \d+ so far, the first that takes a gradient: (.*?);")
EIGHT = "--xla_force_host_platform_device_count=8"


@dataclass(frozen=True)
class Script:
    layout: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Of bufdb; the run under `capture` has the XLA flags that they mean."""
    package: str = "jax"


SCRIPTS_BY_NAME = {
    "linen_lm": Script("flax linen, lm1b", ("linen_lm.py", "--batch", "16"), (), "flax"),
    "nnx_mlp": Script("flax nnx", ("nnx_mlp.py",), (), "flax"),
    "equinox_rnn": Script("equinox, train_rnn", ("equinox_rnn.py",), (), "equinox"),
    "haiku_mnist": Script("haiku, mnist", ("haiku_mnist.py",), (), "dm-haiku"),
    "keras_fit": Script("keras, model.fit", ("keras_fit.py",), (), "keras"),
    "accumulation": Script("optax.MultiSteps", ("accumulation.py",), (), "optax"),
    "ppo": Script("PPO, purejaxrl", ("ppo.py",), (), "flax"),
    "diffrax_ode": Script("diffrax, neural_ode", ("diffrax_ode.py",), (), "diffrax"),
    "numpyro_nuts": Script("numpyro, NUTS", ("numpyro_nuts.py",), (), "numpyro"),
    "maxlike": Script(
        "MaxText's configuration",
        ("-m", "maxlike.train", "maxlike/configs/base.yml", "per_device_batch_size=32"),
        (),
        "optax",
    ),
    "fsdp": Script("FSDP on eight devices", ("fsdp.py",), ("--devices", "8"), "optax"),
    "at_import": Script("trains at import", ("at_import.py", "--batch", "1024")),
}


@dataclass
class Row:
    name: str
    layout: str
    command: str
    call: str = ""
    need: int | None = None
    captured: int | None = None
    target: str = ""
    limit: int | None = None
    plan: int | None = None
    patch: str = ""
    why: str = ""


class Bench:
    """One script, asked in a database of its own."""

    def __init__(self, name, script, folder, kept):
        self.script, self.kept = script, kept
        self.db = str(folder / f"{name}.duckdb")
        self.command = ["--", sys.executable, *script.words]
        self.row = Row(name, script.layout, " ".join(["python", *script.words]))
        if kept.exists():
            self.row = Row(**json.loads(kept.read_text()))

    def ask(self, *words, flags=None):
        """Return the output and the lines of the errors of a command."""
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        if flags is not None:
            environment["XLA_FLAGS"] = flags
        done = subprocess.run(
            [sys.executable, "-m", "bufdb", *words, "--db", self.db, *self.command],
            cwd=SCRIPTS,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.stdout, done.stderr.strip().splitlines()

    def needs(self, run, function=None):
        """Return functions and needs of the programs of a run, the largest first."""
        if not Path(self.db).exists():
            return []
        with bufdb.connect(self.db) as db:
            rows = db.sql(
                "SELECT function_name, need_bytes FROM memory_figures WHERE is_device_memory AND "
                f"run_name = '{run}' ORDER BY need_bytes DESC"
            ).fetchall()
        return [row for row in rows if function in (None, row[0])]

    def answer(self):
        """Ask what is not known yet, and return the row."""
        row = self.row
        if row.need is None and not self.explain(None):
            return row
        if not row.plan and not row.target:
            self.fit(None)
            if not row.plan and self.explain(TARGET):
                row.target = TARGET
                self.fit(TARGET)
        self.kept.write_text(json.dumps(asdict(row)))
        return row

    def explain(self, target):
        """Find the call and its need, on the CPU also in the run; return whether there is one."""
        row, options = self.row, [*self.script.options, *(["--target", target] if target else [])]
        run = f"asked-{target or 'cpu'}"
        _, lines = self.ask("explain", "--run", run, *options)
        if not (needs := self.needs(run)):
            row.why += lines[-1].removeprefix("bufdb: error: ") if lines else "no answer"
            return False
        function, need = needs[0]
        row.limit = int(SHARE * need)
        if target is None:
            row.need = need
            row.call = next(filter(None, map(CALL.search, lines)))[1]
            self.ask("capture", "--run", "whole", flags=EIGHT if options else None)
            whole = [need for _, need in self.needs("whole", function)]
            row.captured = need if need in whole else max(whole, default=None)
        return True

    def fit(self, target):
        row, options = self.row, [*self.script.options, *(["--target", target] if target else [])]
        row.limit = row.limit or int(SHARE * row.need)
        words = "fit", "--limit", f"{row.limit}B", "--format", "json"
        out, lines = self.ask(*words, *options)
        where = "H100" if target else "CPU"
        if not out:
            row.why += f"{where}: {lines[-1].removeprefix('bufdb: error: ')}. "
            return
        answer = json.loads(out)
        best = next((one for one in answer["plans"] if one["rank"] == answer["best"]), None)
        if best is None:
            needs = [one["need_bytes"] for one in answer["plans"] if one["is_compiled"]]
            least = min([answer["as_written"]["need_bytes"], *needs])
            notes = [note for note in answer["notes"] if not CALL.search(note)]
            row.why += f"{where}: {'; '.join([f'the least is {_size(least)}', *notes])}. "
            return
        row.plan = best["need_bytes"]
        row.patch = "yes" if best["is_verified"] else "no"
        if not best["is_verified"]:
            row.why += f"{where}: {'; '.join(best['steps'] or answer['notes'])}. "


def _size(number):
    return "" if number is None else f"{number / 2**20:.2f}"


def table(rows):
    versions = []
    for package in ("jax", "flax", "equinox", "dm-haiku", "keras", "optax", "diffrax", "numpyro"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    equal = sum(row.need is not None and row.need == row.captured for row in rows)
    planned = sum(row.plan is not None for row in rows)
    lines = [
        "# Unmodified scripts",
        "",
        f"Written by `scripts.py` with {', '.join(versions)}.",
        "The scripts of `programs/scripts` are in the layouts of public programs and have no line",
        "for bufdb. The call is the one that `bufdb explain -- COMMAND` chooses by itself, its",
        "need on the CPU is next to that of the program where the whole script runs under",
        f"`bufdb capture`. The plan is the best of `bufdb fit -- COMMAND` with {SHARE:.0%} of the",
        "need as limit, on the CPU, or where no plan fits there, for an H100; its patch is proved",
        "by running the command again up to the call with the patched files. MiB.",
        "",
        f"{len(rows)} scripts: the need as asked is that of the run for {equal}, a plan fits for "
        f"{planned}; lines of glue: 0.",
        "",
        "| layout | command | call | as asked | as run | limit | plan | for | proved | why not |",
        "|---|---|---|--:|--:|--:|--:|---|---|---|",
    ]
    for row in rows:
        cells = [
            row.layout,
            f"`{row.command}`",
            f"`{row.call}`" if row.call else "",
            *map(_size, (row.need, row.captured, row.limit, row.plan)),
            row.target or "cpu",
            row.patch,
            row.why.strip().replace("|", "\\|").replace(f"{SCRIPTS}/", ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", nargs="*", default=[*SCRIPTS_BY_NAME])
    parser.add_argument("--keep", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keep = options.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        for name in options.program:
            bench = Bench(name, SCRIPTS_BY_NAME[name], Path(folder), keep / f"{name}.json")
            print(bench.answer(), file=sys.stderr, flush=True)
        kept = [keep / f"{name}.json" for name in SCRIPTS_BY_NAME]
        rows = [Row(**json.loads(path.read_text())) for path in kept if path.exists()]
    (HERE / "scripts.md").write_text(table(rows))


if __name__ == "__main__":
    main()
