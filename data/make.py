"""Make the sample dumps: model/train.py compiled in several ways, and the other programs there.

    python data/make.py --python /opt/venv/bin/python cpu_b8 cpu_b16 cpu_b8_remat loops/cpu
    python data/make.py --list

Each run is one process whose dumps become one directory. The interpreter that is named
must have jax; make.py itself needs only the standard library. XLA writes the path of the
program and of the dump directory into its dumps, so by default the model is copied to a
neutral place, compiled there and removed, and the dumps are made in /tmp/dumps; nothing
that XLA wrote is edited. data/README.md says which packages each run needs.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = {
    "demo/cpu_b8": ("train.py --batch 8", ""),
    "demo/cpu_b16": ("train.py --batch 16", ""),
    "demo/cpu_b8_remat": ("train.py --batch 8 --remat --no-eval", ""),
    "demo/cpu_b8_old": ("train.py --batch 8", ""),
    "demo/gpu_b8": ("train.py --batch 8 --no-eval --target gpu", "--xla_gpu_autotune_level=0"),
    "demo/tpu_b8": ("train.py --batch 8 --no-eval --target tpu", ""),
    "loops/cpu": ("loops.py layers_named nested accumulated decode", ""),
    "loops/gpu": ("loops.py --target gpu", "--xla_gpu_autotune_level=0"),
    "loops/tpu": ("loops.py --target tpu", ""),
}
RUNS |= {
    "sharded/cpu": ("sharded.py", "--xla_force_host_platform_device_count=8"),
    "sharded/gpu": ("sharded.py --target gpu --offload", "--xla_gpu_autotune_level=0"),
    "sharded/tpu": ("sharded.py --target tpu", ""),
}
RUNS |= {"packaged/cpu": ("-m tiny_train", "")}
RUNS |= {f"lengths/length_{n}": (f"attention.py --length {n}", "") for n in (512, 1024, 1536, 2048)}
# Protos of modules whose texts are in other folders.
AS_PROTO = "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto"
RUNS |= {
    f"protos/{run}": (RUNS[f"{folder}/{run}"][0], f"{RUNS[f'{folder}/{run}'][1]} {AS_PROTO}")
    for run, folder in (("cpu", "sharded"), ("gpu", "loops"), ("tpu", "loops"))
}
# From jaxlib 0.11 on an HLO text names elements of tuples where they are used (`%while.5#1`).
RUNS |= {"elements/cpu": ("loops.py nested", AS_PROTO)}
# From jax 0.11 on a scan's step has another name, and its stacks the line of another scan.
RUNS |= {"scans/cpu": ("two_scans.py", "")}
# Serialized executables of JAX.
EXECUTABLES = "executables/gpu"
RUNS |= {EXECUTABLES: ("loops.py nested --target gpu --executables DUMPS", RUNS["loops/gpu"][1])}
FLAGS = "--xla_backend_optimization_level=0"
HLO_TEXT = "*after_optimizations.txt"
KEEP = [
    HLO_TEXT,
    "*-buffer-assignment.txt",
    "*-buffer-assignment-values.txt",
    "*-live-range.txt",
    "*.debug_options",
]
PROTO = "*after_optimizations.hlo.pb"
BEFORE = "*.before_optimizations.txt"
WITH_BEFORE = ("demo/tpu_b8", "sharded/")
"""Runs whose text before optimizations is kept too: it has the shardings."""


def compile_run(name, python, model_dir, dump_to):
    """Compile one run; XLA writes its dumps to dump_to."""
    command, flags = RUNS[name]
    environment = {
        "HOME": "/home/user",
        "JAX_PLATFORMS": "cpu",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "site-packages",
        "TPU_LOG_DIR": "disabled",
        "XLA_FLAGS": f"--xla_dump_to={dump_to} {FLAGS} {flags}".strip(),
    }
    words = [str(dump_to) if word == "DUMPS" else word for word in command.split()]
    subprocess.run([python, *words], cwd=model_dir, env=environment, check=True)


def keep_files(name, dump_to, out):
    """Copy the files that bufdb reads, of the modules compiled for the target.

    A GPU compilation also evaluates constants on the CPU; those modules are left out. The
    old version names source lines in the buffer files, so its HLO text is left out too.
    """
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    if name == EXECUTABLES:
        for path in dump_to.glob("*.executable"):
            shutil.copyfile(path, out / path.name)
        return
    modules = {
        module_of(path)
        for path in dump_to.glob("*-buffer-assignment.txt")
        if not ("gpu" in name and ".cpu_after_" in path.name)
    }
    kept = [] if name.startswith("protos/") else [*KEEP]
    kept += [BEFORE] if name.startswith(WITH_BEFORE) else []
    kept += [PROTO] if AS_PROTO in RUNS[name][1] else []
    for pattern in kept:
        if name.endswith("_old") and pattern == HLO_TEXT:
            continue
        for path in dump_to.glob(pattern):
            if module_of(path) in modules:
                shutil.copyfile(path, out / path.name)


def module_of(path):
    """module_0002.jit_train_step of any file of that module."""
    return ".".join(path.name.split(".")[:2])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="runs to make, see --list")
    parser.add_argument("--list", action="store_true", help="list the runs and stop")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has jax")
    parser.add_argument(
        "--model-dir",
        type=Path,
        default=Path("/home/user/model"),
        help="where the model is copied to, must not exist (default: %(default)s)",
    )
    parser.add_argument(
        "--dumps",
        type=Path,
        default=Path("/tmp/dumps"),
        help="where XLA writes, one directory per run (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, default=HERE, help="default: data")
    args = parser.parse_args()
    if args.list:
        for name, (command, flags) in RUNS.items():
            print(f"{name:17} {command:40} XLA_FLAGS: {FLAGS} {flags}".rstrip())
        return 0
    args.runs = [name if "/" in name else f"demo/{name}" for name in args.runs]
    unknown = sorted(set(args.runs) - set(RUNS))
    if unknown or not args.runs:
        parser.error(f"runs are {', '.join(RUNS)}; got {', '.join(unknown) or 'none'}")
    shutil.copytree(HERE / "model", args.model_dir, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        for name in args.runs:
            dump_to = args.dumps / name.removeprefix("demo/")
            shutil.rmtree(dump_to, ignore_errors=True)
            compile_run(name, args.python, args.model_dir, dump_to)
            keep_files(name, dump_to, args.out / name)
            shutil.rmtree(dump_to)
    finally:
        shutil.rmtree(args.model_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
