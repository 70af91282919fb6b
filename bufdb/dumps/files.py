"""The files of a dump and what their names say (format section 2)."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from io import FileIO, RawIOBase
from pathlib import Path
from typing import cast

from bufdb.dumps.places.place import Place

PARTS = {
    "-buffer-assignment.txt": "buffer_assignment",
    "-buffer-assignment-values.txt": "values",
    "-live-range.txt": "live_range",
}
BUFFER_KINDS = tuple(PARTS.values())
BEFORE = "before_optimizations"
"""The stage, and the kind, of the HLO text as the compiler received it."""
PROTO = "proto"
"""Kind of a serialised HloProto with its buffer assignment (format section 10)."""
PROTO_SUFFIXES = (".hlo.pb.gz", ".hlo.pb", ".pb.gz", ".pb")
MESSAGE_KIND = "oom_message"
"""An out-of-memory message in a log, which is all there is of its module."""
_INSIDE = re.compile(r".*\.(?:zip|tar|tar\.gz|tgz|tar\.zst):", re.IGNORECASE | re.DOTALL)
"""What stands before the name of a member of an archive."""
XLA_NAME = re.compile(r"(?:\d+\.)?module_\d{4,}\.")
STEM = re.compile(
    r"(?:(?P<time>\d{1,18})\.)?module_(?P<number>\d{4,18})"
    r"(?:\.(?P<name>.+?))??(?:\.cl_(?P<cl>\d{1,18}))?"
    r"(?:\.(?P<stage>(?:(?P<backend>cpu|sm_\d+\.\d+[a-z]?_gpu|gfx[0-9a-f]+_gpu|_gpu|[a-z0-9]+)_)?"
    r"(?:after|before)_optimizations\w*|[^.]+))?"
)


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump, or a frame of a captured output."""

    path: Path | Place
    """Where its bytes are."""
    name: str
    """Path below the ingested directory, with slashes."""
    kind: str
    """A value of files.file_kind."""
    start: int = 0
    stop: int = -1
    """Bytes of the file that hold it; -1 is the file's end."""

    @property
    def stamp(self) -> str | None:
        """What changes with its bytes, where that is known without reading them."""
        return None if isinstance(self.path, Path) else self.path.stamp

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

    @functools.cached_property
    def name(self) -> ModuleName:
        """What the file name says."""
        return parse_stem(base_name(self.key))


@dataclass(frozen=True)
class Oddity:
    """Something below a path that is left out or could not be looked into."""

    name: str | None
    """Path below the ingested directory; None if it is about the whole directory."""
    severity: str
    """diagnostics.severity."""
    code: str
    message: str


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
        """cpu, gpu or tpu, if the backend prefix or the compiler's number says so."""
        if self.backend == "cpu":
            return "cpu"
        if self.backend and self.backend.endswith("gpu"):
            return "gpu"
        return "tpu" if self.cl_number is not None else None


def parse_stem(stem: str) -> ModuleName:
    """Take a stem such as `module_0007.jit_f.sm_9.0a_gpu_after_optimizations` apart."""
    found = STEM.fullmatch(stem)
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


def base_name(name: str) -> str:
    """The last part of a name or key: behind directories, and behind the archive it is in."""
    # Few names have a colon, and to look for an archive's takes 10 us.
    inside = _INSIDE.match(name) if ":" in name else None
    return name[inside.end() if inside else 0 :].rpartition("/")[2]


def stem_of(name: str) -> str:
    """A file name without part suffix and extension."""
    for suffix in (*PARTS, ".txt", *PROTO_SUFFIXES):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def before_of(stem: str) -> str | None:
    """Name of the HLO text before optimisation beside the files of a stem; None if XLA has none."""
    found = STEM.fullmatch(stem)
    if found is None or "after_optimizations" not in (found["stage"] or ""):
        return None
    return f"{stem[: found.start('stage')]}{BEFORE}.txt"


def as_text(name: str) -> str:
    r"""A name of the file system as text to be stored: bytes that are no UTF-8 as `\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_file(path: Path | Place) -> RawIOBase:
    """A file open for reading; never waits, also when the path has become a FIFO meanwhile."""
    if not isinstance(path, Path):
        return cast(RawIOBase, path.open())
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def bears_dump_name(name: str) -> bool:
    """Whether XLA would give this name to a file that is read here."""
    return name.endswith(tuple(PARTS)) or (
        XLA_NAME.match(name) is not None
        and name.endswith(
            (
                *("after_optimizations.txt", f".{BEFORE}.txt", ".debug_options"),
                *("after_optimizations.hlo.pb", "after_optimizations.hlo.pb.gz"),
            )
        )
    )
