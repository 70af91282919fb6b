"""Dump files below the paths given: which they are, and which belong to one module.

Files of one module share a stem: the name without part suffix and extension (format section 2). A
file that does not bear XLA's name is recognised by its content, also when it is the captured
standard output of `--xla_dump_to=-`, where each file stands in a frame.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from bufdb.errors import UsageError
from bufdb.read import boundaries

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
_OPTIMISED = re.compile(
    r"(?P<stem>(?:\d+\.)?module_\d{4,}\..*?after_optimizations)"
    r"\.(?P<extension>txt|hlo\.pb(?:\.gz)?|riegeli)"
)
_MODULE = re.compile(r"module_\d+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST_NAME = 255
"""Bytes that a file's name may have; XLA tests for it before it adds the suffixes (section 2)."""

NO_BUFFERS = "no_buffer_assignment"
"""Code of the oddity that tells of modules without buffer assignment."""
PROTOBUF_ONLY = "dumped as protobuf alone: add --xla_dump_hlo_as_text to XLA_FLAGS"
CACHED = (
    "out of a compilation cache, which compiles nothing: "
    "run with JAX_ENABLE_COMPILATION_CACHE=false"
)
TOO_LONG = "with names too long for XLA to write the files: give the jitted functions shorter names"
NOT_COPIED = (
    "without their *-buffer-assignment.txt files, which XLA writes beside: "
    "take the whole dump directory, or dump again with XLA_FLAGS=--xla_dump_to=DIR"
)


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


def discover(path: Path, oddities: list[Oddity] | None = None) -> list[ModuleFiles]:
    """The modules in a directory and all below it, or of one file, in order of their keys.

    A single file brings along the files beside it that belong to the same module.

    Args:
        path: a directory or a file.
        oddities: takes what is left out or could not be looked into; without it that is passed
            over.

    Raises:
        UsageError: there is no such path, or it is neither a directory nor a file.
    """
    odd: list[Oddity] = [] if oddities is None else oddities
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"no such file or directory: {path}") from error
    except OSError as error:
        raise UsageError(f"cannot look at {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        walk = Walk(odd)
        walk.run(path)
        return _modules(walk.files, odd)
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{path} is {_kind(mode)}; dumps are read from files and directories, so save it to one"
        )
    try:
        siblings = list(path.parent.iterdir())
    except OSError:
        siblings = []
    stem = stem_of(path.name)
    mine = [path, *(file for file in siblings if stem_of(file.name) == stem and file.is_file())]
    modules = _modules({as_text(file.name): file for file in mine}, odd)
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


def as_text(name: str) -> str:
    r"""A name of the file system as text to be stored: bytes that are no UTF-8 as `\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_file(path: Path) -> FileIO:
    """A file open for reading; never waits, also when the path has become a FIFO meanwhile."""
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def bears_dump_name(name: str) -> bool:
    """Whether XLA would give this name to a file that is read here."""
    return name.endswith(tuple(PARTS)) or (
        _XLA_NAME.match(name) is not None
        and name.endswith(("after_optimizations.txt", ".debug_options"))
    )


class Walk:
    """The regular files below a directory: each real directory once, however many links lead to it.

    Keeps a stack of its own, since before Python 3.12 `os.walk` calls itself at every level.
    """

    def __init__(self, oddities: list[Oddity]) -> None:
        self.files: dict[str, Path] = {}
        """By their name below the directory, with slashes."""
        self.oddities = oddities
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
        # Links wait until all real directories are read, and then go by their names: under which
        # name a directory is read depends on nothing else.
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
                with os.scandir(path) as found:
                    entries = sorted(found, key=lambda entry: entry.name, reverse=True)
            except OSError as error:
                self._odd(name, "error", "unreadable_file", _unreadable(error))
                continue
            prefix = f"{name}/" if name else ""
            for entry in entries:
                text = as_text(entry.name)
                if text != entry.name or _CONTROL.search(text):
                    message = "the name is no plain text; bytes that are not UTF-8 show as \\xNN"
                    self._odd(prefix + text, "info", "odd_name", message)
                self._entry(prefix + text, path / entry.name, entry, waiting)

    def _entry(
        self, name: str, path: Path, entry: os.DirEntry[str], waiting: list[tuple[str, Path]]
    ) -> None:
        if entry.is_symlink():
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                self._special(name, f"is a link that leads nowhere: {error.strerror}")
                return
            if stat.S_ISDIR(mode):
                self.folder_links.append((name, path))
            elif stat.S_ISREG(mode):
                self.file_links.append((name, path))
            else:
                self._special(name, f"is a link to {_kind(mode)}")
        elif entry.is_dir(follow_symlinks=False):
            waiting.append((name, path))
        elif entry.is_file(follow_symlinks=False):
            self._add(name, path)
        else:
            try:
                kind = _kind(entry.stat(follow_symlinks=False).st_mode)
            except OSError as error:
                kind = f"no file ({error.strerror})"
            self._special(name, f"is {kind}, not a file; it was not opened")

    def _add_linked_files(self) -> None:
        """Files behind links; one that is below the directory itself has its own name already.

        But where only the link bears a name of XLA's, as in stores that name files after their
        content, the link names the file.
        """
        real = {_identity(path.stat()): name for name, path in self._still_there()}
        for name, path in sorted(self.file_links):
            try:
                target = real.get(_identity(path.stat()))
            except OSError as error:
                self._special(name, f"is a link that leads nowhere: {error.strerror}")
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
            message = "another file has this name, but for bytes that are not UTF-8; rename one"
            self._odd(name, "error", "name_taken", message)
        else:
            self.files[name] = path

    def _seen_before(self, name: str, first: str) -> None:
        if first == "..":
            message = "leads to a directory above the one given; it was not followed"
        else:
            where = f"the directory {first}" if first else "the directory given"
            message = f"leads to {where}, which is read under that name"
        self._odd(name, "info", "read_once", message)

    def _special(self, name: str, message: str) -> None:
        """What is no file or directory is a loss if a dump should be there by its name."""
        severity = "error" if bears_dump_name(name.rpartition("/")[2]) else "info"
        self._odd(name, severity, "unreadable_file" if severity == "error" else "no_file", message)

    def _odd(self, name: str, severity: str, code: str, message: str) -> None:
        self.oddities.append(Oddity(name or ".", severity, code, message))


_Identity = tuple[int, int]


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a directory",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


def _unreadable(error: OSError) -> str:
    hint = ""
    if error.errno == errno.ENAMETOOLONG:
        hint = "; ingest a directory further down, by a short path"
    return f"cannot be read: {error.strerror}{hint}"


def _modules(paths: dict[str, Path], oddities: list[Oddity]) -> list[ModuleFiles]:
    found: dict[str, ModuleFiles] = {}
    for name in sorted(paths, key=_depth_first):
        try:
            dump_files = list(_dump_files(paths[name], name))
        except OSError as error:
            oddities.append(Oddity(name, "error", "unreadable_file", _unreadable(error)))
            continue
        for file in dump_files:
            key = file.name.rpartition("/")
            stem = f"{key[0]}{key[1]}{stem_of(key[2])}"
            module = found.setdefault(stem, ModuleFiles(stem))
            if file.kind in module.files:
                module = found.setdefault(file.name, ModuleFiles(file.name))
            module.files[file.kind] = file
    taken = {file.name for module in found.values() for file in module.files.values()}
    others = {name: path for name, path in paths.items() if name not in taken}
    for module in found.values():
        _add_companions(module, others)
    whole = {key: m for key, m in found.items() if any(k in m.files for k in BUFFER_KINDS)}
    without = _without_buffers(paths, whole)
    if without is not None:
        oddities.append(Oddity(None, "notice", NO_BUFFERS, without))
    return [whole[key] for key in sorted(whole)]


def _depth_first(name: str) -> list[str]:
    """Order of a walk that goes into a directory where its name stands among the others."""
    return name.split("/")


def _without_buffers(paths: dict[str, Path], modules: dict[str, ModuleFiles]) -> str | None:
    """One line about modules of which there is optimised HLO only, with what to do."""
    compiled = {_module_id(key) for key in modules}
    reasons: dict[tuple[str, str], str] = {}
    example: dict[str, str] = {}
    for name in sorted(paths):
        found = _OPTIMISED.fullmatch(name.rpartition("/")[2])
        if found is None or (module := _module_id(name)) in compiled:
            continue
        reason = _why_no_buffers(found["stem"], found["extension"])
        # Text beside the protobuf tells more: it was asked for, and so were the buffers.
        if reason == PROTOBUF_ONLY and module in reasons:
            continue
        reasons[module] = reason
        example.setdefault(reason, name)
    if not reasons:
        return None
    parts = []
    for reason, count in Counter(reasons.values()).items():
        parts.append(f"{count} {reason} (such as {example[reason]})")
    return "modules that have optimised HLO but no buffer assignment: " + "; ".join(parts)


def _why_no_buffers(stem: str, extension: str) -> str:
    if extension != "txt":
        return PROTOBUF_ONLY
    name = parse_stem(stem)
    if name.backend is None and name.cl_number is None:
        return CACHED
    if len(os.fsencode(stem)) + len("-buffer-assignment-values.txt") > _LONGEST_NAME:
        return TOO_LONG
    return NOT_COPIED


def _module_id(name: str) -> tuple[str, str]:
    """Directory and `module_0007`, by which the files of a compilation are known."""
    folder, _, file = name.rpartition("/")
    found = _MODULE.search(file)
    return folder, found[0] if found else file


def _dump_files(path: Path, name: str) -> Iterator[DumpFile]:
    for suffix, kind in PARTS.items():
        if name.endswith(suffix):
            yield DumpFile(path, name, kind)
            return
    if _XLA_NAME.match(path.name):
        return
    with open_file(path) as file:
        head = file.read(_SNIFF_BYTES) or b""
    kind_found = None if _FRAME.search(head) else boundaries.kind_of(head)
    if kind_found is not None:
        yield DumpFile(path, name, kind_found)
    elif path.suffix in _CAPTURED and b"\0" not in head:
        yield from _frames(path, name)


def _frames(path: Path, name: str) -> Iterator[DumpFile]:
    """The dump files in a captured output; each frame's content ends with one line end too many."""
    with open_file(path) as file:
        text = file.readall() or b""
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
