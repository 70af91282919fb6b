"""The sample dumps next to the checkout: where they are and which files make one module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

DUMPS = ROOT.parent / "shared" / "dumps"

needs_dumps = pytest.mark.skipif(
    not DUMPS.is_dir(), reason="the sample dumps (../shared/dumps) are not there"
)

LOOPS = ROOT.parent / "shared" / "loops"
"""Loop programs in `generate/`, and in `dumps/` what compilers of three backends made of them."""

needs_loops = pytest.mark.skipif(
    not LOOPS.is_dir(), reason="the loop programs (../shared/loops) are not there"
)

PARTS = {
    "-buffer-assignment-values.txt": "values",
    "-buffer-assignment.txt": "buffer_assignment",
    "-live-range.txt": "live_range",
}

STEM = re.compile(
    r"(?:(?P<microseconds>\d+)\.)?"
    r"(?P<module>module_\d{4,}(?:\..+?)??)"
    r"(?P<cl>\.cl_\d+)?"
    r"\.(?P<stage>(?:cpu_|sm_\d+\.\d+[af]?_gpu_|gfx[0-9a-f]+_gpu_|_gpu_)?after_optimizations)"
)


def group(root: Path) -> dict[str, dict[str, Path]]:
    """The modules below a directory: path of the stem to the files by kind."""
    modules: dict[str, dict[str, Path]] = {}
    names = sorted(path for path in root.rglob("*.txt") if path.is_file())
    for path in names:
        for suffix, kind in PARTS.items():
            if path.name.endswith(suffix):
                key = path.relative_to(root).as_posix().removesuffix(suffix)
                modules.setdefault(key, {})[kind] = path
                break
    for key, files in modules.items():
        stem = root / key
        hlo = stem.with_name(stem.name + ".txt")
        if hlo.is_file():
            files["hlo"] = hlo
        report = stem.with_name(f"{stem.name}-memory-usage-report.txt")
        if report.is_file():
            files["memory_report"] = report
        match = STEM.fullmatch(stem.name)
        if match:
            options = stem.with_name(f"{match['module']}{match['cl'] or ''}.debug_options")
            if options.is_file():
                files["debug_options"] = options
            before = stem.with_name(stem.name[: match.start("stage")] + "before_optimizations.txt")
            if before.is_file():
                files["before_optimizations"] = before
    for path in names:
        if is_renamed(path):
            key = path.relative_to(root).as_posix().removesuffix(".txt")
            modules[key] = {"buffer_assignment": path}
    return modules


def is_renamed(path: Path) -> bool:
    """Return whether a file holds a buffer assignment although its name does not say so."""
    if any(path.name.endswith(suffix) for suffix in PARTS):
        return False
    with path.open("rb") as file:
        return file.read(18) == b"BufferAssignment:\n"


@cache
def all_modules() -> list[tuple[str, str, dict[str, Path]]]:
    """Every module of every set: (set, key, files by kind); empty without the dumps."""
    if not DUMPS.is_dir():
        return []
    return [
        (directory.name, key, files)
        for directory in sorted(DUMPS.iterdir())
        if directory.is_dir()
        for key, files in sorted(group(directory).items())
    ]


LARGE = {"cpu-0.10.2", "cpu-0.7.2"}
"""33 of all 45 MB, read in the slow tests. Dumps of the first version are in data/demo."""
SETS = [
    pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name
    for name in sorted({name for name, _, _ in all_modules()})
] or [pytest.param("", marks=needs_dumps)]
"""The names of the sets, to be tried one by one."""


def dumps(only: str = "") -> Iterator[tuple[str, str, dict[str, Path]]]:
    """The modules whose set begins with a text."""
    for name, key, files in all_modules():
        if name.startswith(only):
            yield name, key, files


def read_files(files: dict[str, Path]) -> dict[str, bytes]:
    """The contents of a module's files by kind."""
    return {kind: path.read_bytes() for kind, path in files.items()}
