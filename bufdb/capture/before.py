"""Dumps of compilations that an earlier call made, kept by content in the user's cache.

What is kept is what XLA wrote, so that all figures are computed as if it had just been compiled.
The name of an entry is a hash of everything that the compiler is passed: the module with its source
lines, the options, the devices, and what of the environment XLA reads; and of the compiler itself.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bufdb.capture import cache
from bufdb.capture.dump import COMPILER, compile_into, content_of, dump_options

_FORM = 1
"""Of entries: another number is another key."""
_SUFFIX = ".dump"
_MARK = "compiled-before"
"""File next to a dump that is from here: the seconds that its compilation took."""
_PROGRAM, _PLACED = "compiled-program", "compiled-placed"
"""Files next to a dump: what identifies the program that was compiled, without the lines of its
source and with them."""
UNREAD = (".ll", ".o", ".ptx", ".cubin", ".s")
"""Suffixes of files that no ingest reads."""
_CALL = "compile_or_get_cached"
"""JAX's function that has everything that the compiler is passed."""
_VARIABLES = ("XLA_", "LIBTPU", "TPU_", "TF_", "CUDA_", "NVIDIA_", "PJRT_")
"""Beginnings of the names of variables that XLA and its plugins read."""
_PACKAGES = ("jax", "libtpu", "nvidia")


def compile_once(
    lowered: Any,
    folder: Path,
    compiler_options: Mapping[str, Any] | None = None,
    target: tuple[object, ...] = (),
    known: str = "",
) -> str | None:
    """Compile a lowered function with a dump in `folder`, unless an earlier call did so.

    Args:
        lowered: the result of `jax.jit(f).lower(...)`.
        folder: takes what XLA writes, or what it wrote.
        compiler_options: as of `compile_into`.
        target: what describes the hardware, besides what JAX passes to the compiler.
        known: identifies a program that is not compiled again: there is no dump of it then.

    Returns:
        XLA's message if it gave up after it had planned the memory; else None.

    Raises:
        BufdbError: it wrote no dump.
    """
    place = cache.folder()
    programs: list[tuple[str, str]] = []

    def look(*passed: Any) -> None:
        program, placed = _key(target, *passed, has_places=False), _key(target, *passed)
        programs.append((program, placed))
        if program == known:
            raise _Known(None)
        if place is not None and (entry := _read(place, placed)) is not None:
            raise _Known(entry)

    began, refusal, is_new = time.monotonic(), None, True
    try:
        with _before_compiling(look):
            refusal = compile_into(lowered, folder, compiler_options)
    except _Known as before:
        is_new = False
        refusal = None if before.entry is None else before.entry.put(folder)
    if len(programs) != 1:  # this JAX compiles in another way, or more than a module
        return refusal
    ((program, placed),) = programs
    # Not what a device refuses, which may depend on what else is there.
    if is_new and place is not None and (refusal is None or target):
        _write(place, placed, _Entry.of(folder, refusal, time.monotonic() - began))
    _identify(folder, (program, placed))
    return refusal


def put(identity: tuple[str, str], folder: Path) -> bool:
    """Write the dump of a compilation that succeeded to a folder; return whether it is kept.

    Args:
        identity: what `program_in` returned of it.
        folder: for the dump.
    """
    entry = _kept(identity)
    if entry is None:
        return False
    entry.put(folder)
    _identify(folder, identity)
    return True


def is_kept(identity: tuple[str, str]) -> bool:
    """Return whether `put` would write a dump."""
    return _kept(identity) is not None


def _kept(identity: tuple[str, str]) -> _Entry | None:
    place = cache.folder()
    entry = None if place is None else _read(place, identity[1])
    return None if entry is None or entry.refusal is not None else entry


def _identify(folder: Path, identity: tuple[str, str]) -> None:
    for name, text in zip((_PROGRAM, _PLACED), identity, strict=True):
        (folder / name).write_text(text)


def program_in(folder: Path) -> tuple[str, str]:
    """Return what identifies the program of a dump without the lines of its source, and with them.

    Both are empty if it is unknown. Programs that are alike without them need the same.
    """
    try:
        return (folder / _PROGRAM).read_text(), (folder / _PLACED).read_text()
    except OSError:
        return "", ""


def seconds_before(folder: Path) -> float | None:
    """Return what the compilation of a dump took if an earlier call made it; else None."""
    try:
        return float((folder / _MARK).read_text())
    except OSError:
        return None


class _Entry:
    """The files of a dump, and what came of the compilation."""

    def __init__(self, files: Mapping[str, bytes], refusal: str | None, seconds: float) -> None:
        self.files, self.refusal, self.seconds = files, refusal, seconds

    @classmethod
    def of(cls, folder: Path, refusal: str | None, seconds: float) -> _Entry:
        """Return the entry of a dump."""
        paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
        read = [path for path in paths if path.suffix not in UNREAD]
        return cls({path.name: content_of(path) for path in read}, refusal, seconds)

    def put(self, folder: Path) -> str | None:
        """Write the files to a folder; return what the compilation did."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        (folder / _MARK).write_text(repr(self.seconds))
        return self.refusal

    def as_bytes(self) -> bytes:
        """Return the entry as a line of JSON and the contents of its files, compressed."""
        sizes = [[name, len(data)] for name, data in self.files.items()]
        head = {"refusal": self.refusal, "seconds": self.seconds, "files": sizes}
        return zlib.compress(b"\n".join([json.dumps(head).encode(), *self.files.values()]), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> _Entry:
        """Return the entry that `as_bytes` made bytes of."""
        head, _, rest = zlib.decompress(data).partition(b"\n")
        fields = json.loads(head)
        files, at = {}, 0
        for name, size in fields["files"]:
            files[name] = rest[at : at + size]
            at += size + 1
        return cls(files, fields["refusal"], fields["seconds"])


class _Known(BaseException):
    """Ends a compilation before it begins: an entry has its dump, or none is wanted."""

    def __init__(self, entry: _Entry | None) -> None:
        super().__init__()
        self.entry = entry


@contextmanager
def _before_compiling(look: Any) -> Iterator[None]:
    """Call a function with what JAX passes to the compiler, before it compiles within the block."""
    try:
        compiler = importlib.import_module(COMPILER)
        original = getattr(compiler, _CALL)
    except (ImportError, AttributeError):  # another JAX: nothing is kept
        yield
        return

    def looked(*arguments: Any, **options: Any) -> Any:
        look(*arguments[:4])
        return original(*arguments, **options)

    setattr(compiler, _CALL, looked)
    try:
        yield
    finally:
        setattr(compiler, _CALL, original)


# -- The key ---------------------------------------------------------------------------------------


def _key(
    target: tuple[object, ...],
    backend: Any,
    module: Any,
    devices: Any,
    compile_options: Any,
    *,
    has_places: bool = True,
) -> str:
    """Return the hash of what the compiler is passed, and of the compiler.

    Args:
        target: as of `compile_once`.
        backend: as JAX passes it, and so are the others.
        module: lowered.
        devices: all of them.
        compile_options: of XLA.
        has_places: whether the lines of the source count.
    """
    code = io.BytesIO()
    (module.operation if has_places else _without_places(module)).write_bytecode(code)
    # The folder of a dump is another one each time, and changes nothing.
    options, dumps = compile_options.env_option_overrides, dump_options(Path())
    compile_options.env_option_overrides = [pair for pair in options if pair[0] not in dumps]
    try:
        serialized = compile_options.SerializeAsString()
    finally:
        compile_options.env_option_overrides = options
    described = [
        (one.id, one.process_index, one.platform, one.device_kind, getattr(one, "coords", None))
        for one in devices.flatten()
    ]
    client = backend.platform, getattr(backend, "platform_version", "")
    variables = sorted(pair for pair in os.environ.items() if pair[0].startswith(_VARIABLES))
    parts = (_FORM, sorted(dumps), target, client, described, variables, _compiler())
    digest = hashlib.sha256(repr(parts).encode())
    for part in (serialized, code.getvalue()):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def _without_places(module: Any) -> Any:
    """Return a copy of a module without the lines of its source, as JAX's cache has it."""
    managers = importlib.import_module("jax._src.lib.mlir").passmanager
    with module.context:
        copy = module.operation.clone()
        managers.PassManager.parse("builtin.module(strip-debuginfo)").run(copy.operation)
    return copy.operation


@functools.cache
def _compiler() -> tuple[object, ...]:
    """Return what identifies the compiler: its packages as they were installed, and this machine.

    A package that is built again may have the same version; XLA's code for CPUs is that for theirs.
    """
    packages = [
        (path.name, path.stat().st_mtime_ns)
        for folder in sys.path
        for path in Path(folder).glob("*.dist-info")
        if path.name.startswith(_PACKAGES)
    ]
    libraries = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.startswith("jaxlib.") and file.endswith(".so"):
            status = Path(file).stat()
            libraries.append((file, status.st_size, status.st_mtime_ns))
    processor = platform.processor()
    with suppress(OSError):
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor = "\n".join(sorted({a for a in about if a.startswith(("model name", "flags"))}))
    versions = sys.version, importlib.import_module("jax").__version__
    return versions, sorted(packages), libraries, platform.machine(), processor, os.cpu_count()


# -- Entries ---------------------------------------------------------------------------------------


def _read(place: Path, key: str) -> _Entry | None:
    """Return an entry; None if there is none."""
    data = cache.read(place, key + _SUFFIX)
    return None if data is None else _Entry.from_bytes(data)


def _write(place: Path, key: str, entry: _Entry) -> None:
    cache.write(place, key + _SUFFIX, entry.as_bytes())
