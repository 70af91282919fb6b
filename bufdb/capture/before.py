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
_UNREAD = (".ll", ".o", ".ptx", ".cubin", ".s")
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
) -> str | None:
    """Compile a lowered function with a dump in `folder`, unless an earlier call did so.

    Args:
        lowered: the result of `jax.jit(f).lower(...)`.
        folder: takes what XLA writes, or what it wrote.
        compiler_options: as of `compile_into`.
        target: what describes the hardware, besides what JAX passes to the compiler.

    Returns:
        XLA's message if it gave up after it had planned the memory; else None.

    Raises:
        BufdbError: it wrote no dump.
    """
    place = cache.folder()
    if place is None:
        return compile_into(lowered, folder, compiler_options)
    keys: list[str] = []

    def look(*passed: Any) -> None:
        key = _key(target, *passed)
        keys.append(key)
        if (entry := _read(place, key)) is not None:
            raise _Known(entry)

    began = time.monotonic()
    try:
        with _before_compiling(look):
            refusal = compile_into(lowered, folder, compiler_options)
    except _Known as known:
        return known.entry.put(folder)
    # Not if this JAX compiles in another way, or more than a module; nor what a device refuses,
    # which may depend on what else is there.
    if len(keys) == 1 and (refusal is None or target):
        _write(place, keys[0], _Entry.of(folder, refusal, time.monotonic() - began))
    return refusal


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
        read = [path for path in paths if path.suffix not in _UNREAD]
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
    """Ends a compilation before it begins: an entry has its dump."""

    def __init__(self, entry: _Entry) -> None:
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
    target: tuple[object, ...], backend: Any, module: Any, devices: Any, compile_options: Any
) -> str:
    """Return the hash of what the compiler is passed, and of the compiler."""
    code = io.BytesIO()
    module.operation.write_bytecode(code)
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
