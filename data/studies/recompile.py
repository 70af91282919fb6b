"""Compare the saving that bufdb predicts for a change with what XLA does with the changed program.

Compiles the programs of `programs/` as they are written, for the CPU here and for a GPU and a TPU
ahead of time where the packages for it are installed (data/README.md names them). What the changed
programs need is in `got.json`; those that are missing there are compiled as well. Writes tables:
`recompiled.md` what `bufdb what-if` says of train steps, `promised.md` what query advice says.

    python recompile.py [--target cpu ...] [--keep DIR] [--again] [--write-sureness]

Needs jax, flax and optax: 4 minutes of CPU, or 30 with all changes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import figures
import promised
import what_if_errors
from programs.registry import Case, cases

from bufdb.database import store
from bufdb.ingest.ingest import ingest

HERE = Path(__file__).resolve().parent
GOT = HERE / "got.json"
NEEDS = {"cpu": "jaxlib", "gpu": "jax_cuda12_plugin", "tpu": "libtpu"}
FLAGS = {
    "cpu": "--xla_force_host_platform_device_count=4",
    "gpu": "--xla_gpu_autotune_level=0",
    "tpu": "",
}
# Machine code comes after buffer assignment.
QUICKLY = "--xla_backend_optimization_level=0"
# All of VMEM is for fusions, so that programs this small have their arrays in HBM.
TPU_FLAGS = "--xla_tpu_scoped_vmem_limit_kib=131072"
PEAKS = """
SELECT modules.function_name, figures.peak_bytes, figures.fixed_bytes + figures.temp_bytes
FROM memory_figures AS figures
JOIN modules ON modules.module_id = figures.module_id
WHERE figures.run_name = $1
  AND figures.color = 0
"""

Peaks = dict[str, list[int]]
"""Peak and XLA's reservation by function [bytes]."""


def compile_cases(target: str, some: Iterable[Case], folder: Path) -> None:
    """Compile what the folder has no dump of."""
    dumps = folder.glob("*buffer-assignment.txt")
    there = {path.name.partition(".jit_")[2].partition(".")[0] for path in dumps}
    missing = [case.function for case in some if case.function not in there]
    environ = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a description needs no device
        "TPU_LOG_DIR": "disabled",
        "LIBTPU_INIT_ARGS": TPU_FLAGS,
        "XLA_FLAGS": f"--xla_dump_to={folder} {QUICKLY} {FLAGS[target]}",
    }
    if missing:
        command = [sys.executable, "-m", "programs.registry", target, *missing]
        subprocess.run(command, cwd=HERE, env=environ, check=True)


def peaks_of(database: Path, target: str) -> Peaks:
    con = store.open_readable(str(database), PEAKS)
    return {name: figures for name, *figures in con.execute(PEAKS, [target]).fetchall()}


def measured(target: str, folder: Path, is_again: bool, known: Peaks) -> Peaks:
    """Compile programs, and those of their changes that are not known, into folder/t.duckdb."""
    wanted = [
        case
        for case in cases(target)
        if case.made is None or is_again or case.function not in known
    ]
    compile_cases(target, wanted, folder / target)
    ingest(str(folder / "t.duckdb"), [folder / target])
    peaks = peaks_of(folder / "t.duckdb", target)
    for case in cases(target):
        if (
            case.made is None
            and not is_again
            and peaks[case.function] != known.get(case.function, peaks[case.function])
        ):
            sys.exit(f"{target} {case.function} is not what it was: use --again")
    there = {case.function for case in cases(target)}
    return {name: figures for name, figures in sorted((known | peaks).items()) if name in there}


def read_got(is_again: bool) -> dict[str, Peaks]:
    """Read earlier measurements by target."""
    if not GOT.exists():
        return {}
    got = json.loads(GOT.read_text("utf-8"))
    if got.pop("jax") != version("jax") and not is_again:
        sys.exit(f"{GOT.name} is of another jax: use --again")
    return got


def write_got(got: dict[str, Peaks]) -> None:
    """Write one line per function."""
    lines = [
        f' "{target}": {{\n'
        + ",\n".join(f'  "{name}": {json.dumps(figures)}' for name, figures in functions.items())
        + "\n }"
        for target, functions in got.items()
    ]
    head = f'{{\n "jax": "{version("jax")}",\n'
    GOT.write_text(head + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=NEEDS, action="append", help="default: what is there")
    parser.add_argument("--keep", type=Path, help="directory for the dumps, used again if there")
    parser.add_argument("--again", action="store_true", help="compile all changes again")
    parser.add_argument(
        "--write-sureness", action="store_true", help="also write schema/views/advice_sureness.sql"
    )
    args = parser.parse_args()
    absent = {name: package for name, package in NEEDS.items() if find_spec(package) is None}
    for name in args.target or absent:
        if name in absent:
            print(f"left out: {name}, which needs {absent[name]}", file=sys.stderr)
    targets = [name for name in args.target or NEEDS if name not in absent]
    got = read_got(args.again)
    what_if: list[what_if_errors.Row] = []
    promises: list[promised.Row] = []
    firsts: list[promised.First] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.keep or Path(scratch)).resolve()
        for target in targets:
            got[target] = measured(target, folder, args.again, got.get(target, {}))
            write_got(got)
            peaks = {name: peak for name, (peak, _) in got[target].items()}
            what_if += what_if_errors.rows_of(folder / "t.duckdb", target, cases(target), peaks)
            rows = promised.rows_of(folder / "t.duckdb", target, cases(target), peaks)
            promises += rows[0]
            firsts += rows[1]
    text = promised.page(promises, firsts, version("jax"))
    if targets != list(NEEDS):
        print(text)
        return
    (HERE / "promised.md").write_text(text, encoding="utf-8")
    text = what_if_errors.page(what_if, version("jax"))
    (HERE / "recompiled.md").write_text(text, encoding="utf-8")
    figures.write(text)
    if args.write_sureness:
        promised.write_sureness(promises)


if __name__ == "__main__":
    main()
