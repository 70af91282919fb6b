"""Dump files below the paths given: which they are, and which belong to one module.

Files of one module share a stem: the name without part suffix and extension (format section 2). A
file that does not bear XLA's name is recognised by its content, also when it is the captured
standard output of `--xla_dump_to=-`, where each file stands in a frame.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bufdb.errors import UsageError
from bufdb.read import cut

PARTS = {
    "-buffer-assignment.txt": "buffer_assignment",
    "-buffer-assignment-values.txt": "values",
    "-live-range.txt": "live_range",
}
BUFFER_KINDS = tuple(PARTS.values())
_XLA_NAME = re.compile(r"(?:\d+\.)?module_\d{4,}\.")
_STEM = re.compile(
    r"(?:(?P<time>\d{1,18})\.)?module_(?P<number>\d{4,18})"
    r"(?:\.(?P<name>.+?))??(?:\.cl_(?P<cl>\d{1,18}))?"
    r"(?:\.(?P<stage>(?:(?P<backend>cpu|sm_\d+\.\d+[a-z]?_gpu|gfx[0-9a-f]+_gpu|_gpu|[a-z0-9]+)_)?"
    r"(?:after|before)_optimizations\w*|[^.]+))?"
)
_SNIFF_BYTES = 4096
_FRAME = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\n", re.MULTILINE)
_CAPTURED = (".txt", ".log", ".out", "")


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump, or a frame of a captured output."""

    path: Path
    """Where it is on disk."""
    name: str
    """Path below the ingested directory, with slashes."""
    kind: str
    """A value of files.file_kind."""
    start: int = 0
    stop: int = -1
    """Bytes of the file that hold it; -1 is the file's end."""

    def size(self) -> int:
        """Size in bytes."""
        return (self.path.stat().st_size if self.stop < 0 else self.stop) - self.start


@dataclass
class ModuleFiles:
    """The files of one module."""

    key: str
    """modules.module_key."""
    files: dict[str, DumpFile] = field(default_factory=dict)
    """By kind."""

    @property
    def name(self) -> ModuleName:
        """What the file name says."""
        return parse_stem(self.key.rpartition("/")[2])


@dataclass(frozen=True)
class ModuleName:
    """What a dump's stem says about its module; None where it does not."""

    module_name: str | None = None
    module_number: int | None = None
    dump_time_us: int | None = None
    cl_number: int | None = None
    backend: str | None = None

    @property
    def platform(self) -> str | None:
        """cpu, gpu or tpu, if the backend prefix or the compiler's number tells."""
        if self.backend == "cpu":
            return "cpu"
        if self.backend and self.backend.endswith("gpu"):
            return "gpu"
        return "tpu" if self.cl_number is not None else None


def parse_stem(stem: str) -> ModuleName:
    """Take a stem such as `module_0007.jit_f.sm_9.0a_gpu_after_optimizations` apart."""
    found = _STEM.fullmatch(stem)
    if found is None:
        return ModuleName()
    time, cl = found["time"], found["cl"]
    return ModuleName(
        found["name"],
        int(found["number"]),
        None if time is None else int(time),
        None if cl is None else int(cl),
        found["backend"],
    )


def discover(path: Path, unreadable: list[OSError] | None = None) -> list[ModuleFiles]:
    """The modules in a directory and all below it, or of one file, in order of their keys.

    A single file brings along the files beside it that belong to the same module.

    Args:
        path: a directory or a file.
        unreadable: takes the errors of directories and files that could not be looked into;
            without it they are passed over.

    Raises:
        UsageError: there is no such path.
    """
    if not path.exists():
        raise UsageError(f"no such file or directory: {path}")
    errors = [] if unreadable is None else unreadable
    if path.is_dir():
        return _modules(path, list(_walk(path, errors)), errors)
    beside = [path.parent / name for name in sorted(entry.name for entry in path.parent.iterdir())]
    stem = stem_of(path.name)
    mine = [file for file in beside if file == path or stem_of(file.name) == stem]
    modules = _modules(path.parent, [file for file in mine if file.is_file()], errors)
    chosen = [m for m in modules if any(f.path == path for f in m.files.values())]
    return chosen or modules


def base_of(path: Path) -> Path:
    """The directory whose name a run takes: the path, or the directory of a file."""
    return path if path.is_dir() else path.parent


def stem_of(name: str) -> str:
    """A file name without part suffix and extension."""
    for suffix in (*PARTS, ".txt"):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _walk(folder: Path, errors: list[OSError]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        errors.append(error)
        return
    for entry in entries:
        if entry.is_dir():
            yield from _walk(Path(entry.path), errors)
        elif entry.is_file():
            yield Path(entry.path)


def _modules(base: Path, paths: list[Path], errors: list[OSError]) -> list[ModuleFiles]:
    found: dict[str, ModuleFiles] = {}
    names: dict[str, Path] = {}
    prefix = len(str(base)) + 1
    for path in paths:
        name = str(path)[prefix:].replace(os.sep, "/")
        names[name] = path
        try:
            dump_files = list(_dump_files(path, name))
        except OSError as error:
            errors.append(error)
            continue
        for file in dump_files:
            key = file.name.rpartition("/")
            stem = f"{key[0]}{key[1]}{stem_of(key[2])}"
            module = found.setdefault(stem, ModuleFiles(stem))
            if file.kind in module.files:
                module = found.setdefault(file.name, ModuleFiles(file.name))
            module.files[file.kind] = file
    taken = {file.name for module in found.values() for file in module.files.values()}
    others = {name: path for name, path in names.items() if name not in taken}
    for module in found.values():
        _add_companions(module, others)
    whole = {key: m for key, m in found.items() if any(k in m.files for k in BUFFER_KINDS)}
    return [whole[key] for key in sorted(whole)]


def _dump_files(path: Path, name: str) -> Iterator[DumpFile]:
    for suffix, kind in PARTS.items():
        if name.endswith(suffix):
            yield DumpFile(path, name, kind)
            return
    if _XLA_NAME.match(path.name):
        return
    with path.open("rb") as file:
        head = file.read(_SNIFF_BYTES)
    kind_found = None if _FRAME.search(head) else cut.kind_of(head)
    if kind_found is not None:
        yield DumpFile(path, name, kind_found)
    elif path.suffix in _CAPTURED and b"\0" not in head:
        yield from _frames(path, name)


def _frames(path: Path, name: str) -> Iterator[DumpFile]:
    """The dump files in a captured output; each frame's content ends with one line end too many."""
    text = path.read_bytes()
    for begin in _FRAME.finditer(text):
        inner = begin[1].decode(errors="replace")
        end = text.find(b"*** End " + begin[1] + b" ***", begin.end())
        stop = len(text) if end < 0 else max(begin.end(), end - 1)
        framed = f"{name}/{inner}"
        for suffix, kind in PARTS.items():
            if inner.endswith(suffix):
                yield DumpFile(path, framed, kind, begin.end(), stop)
                break
        else:
            if inner.endswith("after_optimizations.txt"):
                yield DumpFile(path, framed, "hlo", begin.end(), stop)


def _add_companions(module: ModuleFiles, names: dict[str, Path]) -> None:
    """The HLO text and the compiler options that lie beside the buffer files."""
    hlo = f"{module.key}.txt"
    if "hlo" not in module.files and hlo in names:
        module.files["hlo"] = DumpFile(names[hlo], hlo, "hlo")
    folder, slash, stem = module.key.rpartition("/")
    found = _STEM.fullmatch(stem)
    if found is None:
        return
    whole = re.sub(r"^\d+\.(?=module_)", "", stem)
    if found["stage"]:
        whole = whole[: -len(found["stage"]) - 1]
    options = f"{folder}{slash}{whole}.debug_options"
    if options in names:
        module.files["debug_options"] = DumpFile(names[options], options, "debug_options")
