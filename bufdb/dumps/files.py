"""Files of dumps: what their names say (format section 2), and the files below a directory."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO, RawIOBase
from pathlib import Path
from typing import cast

from bufdb.dumps.place import Place

# -- The files of a dump and what their names say (format section 2) -------------------------------

PARTS = {
    "-buffer-assignment.txt": "buffer_assignment",
    "-buffer-assignment-values.txt": "values",
    "-live-range.txt": "live_range",
}
BUFFER_KINDS = tuple(PARTS.values())
BLOCK_BYTES = 10 << 20
"""Text of small modules read per round. Measured on 1,000 modules of 1 MB: 6 MB costs 12 % more CPU
in fixed cost per round, 32 MB 10 % in page faults."""
LARGE_BLOCK_BYTES = 4 << 20
"""Text of a large module read per round: 10 MB saves no CPU there and costs 60 MB of memory."""
BEFORE = "before_optimizations"
"""The stage, and the kind, of the HLO text as the compiler received it."""
CODE = "after_codegen"
"""The kind of the HLO text after code generation (format section 9.3)."""
THUNKS, THUNK_NAMES, GPU_CONFIG = "thunk_sequence", "thunk_metadata", "gpu_target_config"
"""Kinds of the texts on kernels of a GPU."""
COMPANIONS = {
    "debug_options": ".debug_options",
    CODE: ".after_codegen.txt",
    THUNKS: ".thunk_sequence.txt",
    THUNK_NAMES: ".thunk_metadata.txt",
    GPU_CONFIG: ".gpu_target_config.pbtxt",
}
"""Suffixes, by kind, of files whose name has neither a stage nor a backend."""
PROTO = "proto"
"""Kind of a serialized HloProto with its buffer assignment (format section 10)."""
PROTO_SUFFIXES = (".hlo.pb.gz", ".hlo.pb", ".pb.gz", ".pb")
MESSAGE_KIND = "oom_message"
"""An out-of-memory message in a log, the only file of its module."""
_INSIDE = re.compile(r".*\.(?:zip|tar|tar\.gz|tgz|tar\.zst):", re.IGNORECASE | re.DOTALL)
"""The text before the name of a member of an archive."""
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
        """Return the size in bytes."""
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
class Problem:
    """Something below a path that is left out or could not be read."""

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
    match = STEM.fullmatch(stem)
    if match is None:
        return ModuleName()
    time, cl = match["time"], match["cl"]
    return ModuleName(
        match["name"],
        int(match["number"]),
        None if time is None else int(time),
        None if cl is None else int(cl),
        match["backend"],
    )


def base_name(name: str) -> str:
    """Return the last part of a name or key: after directories, and after its archive."""
    # Few names have a colon, and looking for an archive's takes 10 us.
    inside = _INSIDE.match(name) if ":" in name else None
    return name[inside.end() if inside else 0 :].rpartition("/")[2]


def stem_of(name: str) -> str:
    """Return a file name without part suffix and extension."""
    for suffix in (*PARTS, ".txt", *PROTO_SUFFIXES):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def before_of(stem: str) -> str | None:
    """Return the name of a stem's HLO text before optimization; None if XLA has none."""
    match = STEM.fullmatch(stem)
    if match is None or "after_optimizations" not in (match["stage"] or ""):
        return None
    return f"{stem[: match.start('stage')]}{BEFORE}.txt"


def as_text(name: str) -> str:
    r"""Return a name of the file system as text to be stored: bytes that are no UTF-8 as `\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_file(path: Path | Place) -> RawIOBase:
    """Open a file for reading; never wait, even if the path has become a FIFO meanwhile."""
    if not isinstance(path, Path):
        return cast(RawIOBase, path.open())
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def bears_dump_name(name: str) -> bool:
    """Return whether XLA would give this name to a file that is read here."""
    return name.endswith(tuple(PARTS)) or (
        XLA_NAME.match(name) is not None
        and name.endswith(
            (
                *("after_optimizations.txt", f".{BEFORE}.txt", *COMPANIONS.values()),
                *("after_optimizations.hlo.pb", "after_optimizations.hlo.pb.gz"),
            )
        )
    )


# --------------------------------------------------------------------------------------------------
# The regular files below a directory: each once, whatever is there (links, FIFOs, odd names).

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Walk:
    """The regular files below a directory: each real directory once, however many links lead to it.

    Keeps a stack of its own, since before Python 3.12 `os.walk` calls itself at every level.
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.files: dict[str, Path] = {}
        """By their name below the directory, with slashes."""
        self.problems = problems
        self.seen: dict[_Identity, str] = {}
        """Name of each directory that was read; '..' for those above the one given."""
        self.folder_links: list[tuple[str, Path]] = []
        self.file_links: list[tuple[str, Path]] = []

    def run(self, base: Path) -> None:
        """Look into a directory and all below it."""
        for folder in base.resolve().parents:
            with contextlib.suppress(OSError):
                self.seen[_identity(folder.stat())] = ".."
        self._read("", base)
        # Links wait until all real directories are read, and then go by their names: nothing else
        # decides under which name a directory is read.
        while self.folder_links:
            links, self.folder_links = sorted(self.folder_links), []
            for name, path in links:
                self._read(name, path)
        if self.file_links:
            self._add_linked_files()

    def _read(self, name: str, path: Path) -> None:
        waiting = [(name, path)]
        while waiting:
            name, path = waiting.pop()
            try:
                identity = _identity(path.stat())
                if identity in self.seen:
                    self._seen_before(name, self.seen[identity])
                    continue
                self.seen[identity] = name
                with os.scandir(path) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name, reverse=True)
            except OSError as error:
                self._odd(name, "error", "unreadable_file", why_unreadable(error))
                continue
            prefix = f"{name}/" if name else ""
            for entry in entries:
                text = as_text(entry.name)
                if text != entry.name or _CONTROL.search(text):
                    message = "the name is not UTF-8; other bytes show as \\xNN"
                    self._odd(prefix + text, "info", "odd_name", message)
                self._entry(prefix + text, path / entry.name, entry, waiting)

    def _entry(
        self, name: str, path: Path, entry: os.DirEntry[str], waiting: list[tuple[str, Path]]
    ) -> None:
        if entry.is_symlink():
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                self._special(name, f"is a broken link: {error.strerror}")
                return
            if stat.S_ISDIR(mode):
                self.folder_links.append((name, path))
            elif stat.S_ISREG(mode):
                self.file_links.append((name, path))
            else:
                self._special(name, f"is a link to {kind_of_entry(mode)}")
        elif entry.is_dir(follow_symlinks=False):
            waiting.append((name, path))
        elif entry.is_file(follow_symlinks=False):
            self._add(name, path)
        else:
            try:
                kind = kind_of_entry(entry.stat(follow_symlinks=False).st_mode)
            except OSError as error:
                kind = f"no file ({error.strerror})"
            self._special(name, f"is {kind}, not a file; it was not opened")

    def _add_linked_files(self) -> None:
        """Add files that links lead to; one below the directory itself already has its own name.

        But if only the link has a name of XLA's, as in stores that name files after their content,
        the link names the file.
        """
        real = {_identity(path.stat()): name for name, path in self._still_there()}
        for name, path in sorted(self.file_links):
            try:
                target = real.get(_identity(path.stat()))
            except OSError as error:
                self._special(name, f"is a broken link: {error.strerror}")
                continue
            if target is None:
                self._add(name, path)
            elif bears_dump_name(name) and not bears_dump_name(target):
                self.files.pop(target, None)
                self._add(name, path)
            else:
                message = f"is a link to {target}, which is read under that name"
                self._odd(name, "info", "read_once", message)

    def _still_there(self) -> Iterator[tuple[str, Path]]:
        return ((name, path) for name, path in self.files.items() if path.exists())

    def _add(self, name: str, path: Path) -> None:
        if name in self.files:
            message = "another file has this name except for bytes that are not UTF-8; rename one"
            self._odd(name, "error", "name_taken", message)
        else:
            self.files[name] = path

    def _seen_before(self, name: str, first: str) -> None:
        if first == "..":
            message = "leads to a directory above the ingested one; it was not followed"
        else:
            where = f"the directory {first}" if first else "the directory given"
            message = f"leads to {where}, which is read under that name"
        self._odd(name, "info", "read_once", message)

    def _special(self, name: str, message: str) -> None:
        """Report what is no file or directory, as a loss if it has the name of a dump."""
        severity = "error" if bears_dump_name(name.rpartition("/")[2]) else "info"
        self._odd(name, severity, "unreadable_file" if severity == "error" else "no_file", message)

    def _odd(self, name: str, severity: str, code: str, message: str) -> None:
        self.problems.append(Problem(name or ".", severity, code, message))


_Identity = tuple[int, int]


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def kind_of_entry(mode: int) -> str:
    """Return what a directory entry is, in words."""
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a directory",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


def why_unreadable(error: OSError) -> str:
    """Return what hinders reading, with what to do about it."""
    hint = ""
    if error.errno == errno.ENAMETOOLONG:
        hint = "; ingest a directory further down, by a short path"
    return f"cannot be read: {error.strerror}{hint}"
