"""Dumps of what this process compiles: one function, or all of a watched block."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.dumps.place import Bytes, Place
from bufdb.errors import BufdbError, UsageError
from bufdb.proto.reader import (
    MAX_BYTES,
    UnreadableProto,
    found_within,
    hlo_proto,
    is_readable,
    named_within,
    names_of,
    varint,
)

# -- Bypass JAX's caches: what comes from a cache is not compiled, and so not dumped ---------------


@contextmanager
def without_persistent_cache() -> Iterator[None]:
    """Disable JAX's persistent compilation cache within the block: a hit dumps nothing.

    Does not import jax: if it is not imported, nothing is compiled either.
    """
    jax = sys.modules.get("jax")
    name = "jax_enable_compilation_cache"
    before = getattr(getattr(jax, "config", None), name, None)
    if jax is None or not before:
        yield
        return
    cache = importlib.import_module("jax.experimental.compilation_cache.compilation_cache")
    jax.config.update(name, False)
    # JAX reads the setting once, at the first compilation, and again after a reset.
    cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update(name, before)
        cache.reset_cache()


# -- Riegeli records, in which XLA stores what it compiled for hardware that is not present --------
#
# A file is blocks of 64 KiB, each with a header, and across them chunks, each with a header too; a
# chunk of simple records has their sizes and then their bytes, both plain or compressed. That is
# what libtpu and, with Snappy, XLA for GPUs write; any other chunk is returned as raw bytes. A
# record may be a file itself (for GPUs from jaxlib 0.12 on). Hashes are not checked: the result is
# compared with the expected module. https://github.com/google/riegeli:
# doc/riegeli_records_file_format.md

_BEGIN = bytes.fromhex("83af70d10d884a3f")
"""The beginning of a file: the hash of its first block header."""
_BLOCK_BYTES, _BLOCK_HEADER_BYTES = 1 << 16, 24
_CHUNK_HEADER = struct.Struct("<QQQQQ")
"""Hash of the rest, size, hash of the data, type and number of records, size of the records."""
_SIMPLE, _NONE, _SNAPPY = ord("r"), b"\x00", b"s"


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records in some bytes, ignoring any prefix; all bytes if there are none.

    Raises:
        BufdbError: they are compressed, and the package for that is not installed.
    """
    start = data.find(_BEGIN)
    if start < 0:
        yield data
        return
    blocks = range(start, len(data), _BLOCK_BYTES)
    whole = b"".join(data[at + _BLOCK_HEADER_BYTES : at + _BLOCK_BYTES] for at in blocks)
    at = 0
    while at + _CHUNK_HEADER.size <= len(whole):
        _, size, _, kind, _ = _CHUNK_HEADER.unpack_from(whole, at)
        begin, stop = at + _CHUNK_HEADER.size, at + _CHUNK_HEADER.size + size
        simple = (
            _simple(whole[begin:stop]) if kind & 255 == _SIMPLE and stop <= len(whole) else None
        )
        for record in [whole[at:stop]] if simple is None else simple:
            yield from records(record) if _BEGIN in record else [record]
        at = stop


def _simple(chunk: bytes) -> list[bytes] | None:
    """Return the records of a chunk of simple ones; None if it is malformed or of unknown form."""
    size, at = varint(chunk, 1)
    if at < 0:
        return None
    sizes = _plain(chunk[:1], chunk[at : at + size])
    values = _plain(chunk[:1], chunk[at + size :])
    if sizes is None or values is None:
        return None
    parts, place, stop = [], 0, 0
    while place < len(sizes):
        size, place = varint(sizes, place)
        if place < 0:
            return None
        parts.append(values[stop : stop + size])
        stop += size
    return parts if stop == len(values) else None


def _plain(how: bytes, data: bytes) -> bytes | None:
    if how == _NONE:
        return data
    size, at = varint(data, 0)
    # Snappy's own data begins with the size, too.
    if how != _SNAPPY or at < 0 or size > MAX_BYTES or varint(data, at)[0] != size:
        return None
    if importlib.util.find_spec("cramjam") is None:
        raise BufdbError(
            "an executable compiled ahead of time for a GPU is compressed with Snappy; reading it "
            "needs the package cramjam: pip install 'bufdb[jax]'; or pass the result of "
            ".lower(...), which needs no package"
        )
    cramjam = importlib.import_module("cramjam")
    try:
        return bytes(cramjam.snappy.decompress_raw(data[at:]))
    except cramjam.DecompressionError:
        return None


# -- A function that JAX lowered or compiled, as files of a dump that an ingest reads --------------
#
# Files lie where XLA wrote them, or in memory. Invariant: their names depend on what is in them
# alone, so that the same program is one module however often it is compiled, and two programs are
# two.

ASSIGNMENT = "-buffer-assignment.txt"
FLAGS = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text'"
"""The setting that makes any program dump, for messages."""
LOG = ".log"
REFUSAL_LENGTH = 400
_CONTENT = (ASSIGNMENT, "after_optimizations.txt")
"""Files that identify a program."""
_NUMBER = re.compile(r"module_\d+")
_OPTIONS = ".debug_options"
_BACKENDS = {"cpu": "cpu_", "gpu": "gpu_", "cuda": "gpu_", "rocm": "gpu_"}
"""Prefix of dump file names after the module's name, by platform; none for TPUs."""


Dumped = dict[str, Path | Place]
"""Files of a dump by name, see `bufdb.dumps.place.Files`."""


def dumped(
    function: Any, folder: Path, compiler_options: Mapping[str, Any] | None = None
) -> tuple[Dumped, str | None]:
    """Return the dump of a function, and XLA's message if it refused to go on.

    If it planned the memory and then refused, usually because it is too much, the plan is in the
    dump nevertheless.

    Args:
        function: the result of `jax.jit(f).lower(...)`, which is compiled with dumps enabled; or
            the result of `.compile()`, whose buffer assignment is taken.
        folder: takes what XLA writes.
        compiler_options: passed to `compile` of a lowered function.

    Raises:
        UsageError: it is something else.
        BufdbError: it has no buffer assignment, or XLA wrote none.
    """
    if callable(getattr(function, "memory_analysis", None)):
        if compiler_options is not None:
            raise UsageError("this is compiled; compiler_options needs the result of .lower(...)")
        return _of_compiled(function), None
    if callable(getattr(function, "compile", None)):
        own = Path(tempfile.mkdtemp(dir=folder))
        refusal = compile_into(function, own, compiler_options)
        return programs(own), refusal
    hint = ""
    if callable(function):
        hint = "; bufdb.explain(f, *args) summarizes a plain or jitted function"
    raise UsageError(
        "expected paths, or the result of jax.jit(f).lower(...) or .compile(), found "
        f"{type(function).__name__}{hint}"
    )


def dump_options(folder: Path) -> dict[str, Any]:
    """Return compiler options that make XLA dump text into `folder`, whatever XLA_FLAGS has."""
    return {
        "xla_dump_to": str(folder),
        "xla_dump_hlo_as_text": True,
        "xla_dump_hlo_module_re": ".*",
    }


def compile_into(
    lowered: Any, folder: Path, compiler_options: Mapping[str, Any] | None = None
) -> str | None:
    """Compile a lowered function once more, with a dump in `folder`.

    Returns:
        XLA's message if it gave up after it had planned the memory; else None.

    Raises:
        BufdbError: it wrote none.
    """
    options = {**(compiler_options or {}), **dump_options(folder)}
    refusal = None
    try:
        with without_persistent_cache():
            lowered.compile(compiler_options=options)
    except Exception as error:  # JAX's own class of errors moved between its versions
        if not _is_planned(folder):
            raise
        refusal = _shortened(error)
        from bufdb.dumps.refusals import other_spaces

        # A dump omits the memory of a kernel; only the message has it.
        if text := other_spaces(str(error), folder):
            (folder / f"compiler{LOG}").write_text(text, encoding="utf-8")
    if not _is_planned(folder):
        raise BufdbError(
            "XLA wrote no buffer assignment when it compiled this; run the program with "
            f"{FLAGS} and ingest DIR"
        )
    return refusal


def _is_planned(folder: Path) -> bool:
    return any(folder.glob(f"*{ASSIGNMENT}"))


def _shortened(error: Exception) -> str:
    """Return XLA's error message as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    # Drop the instruction of a kernel, and advice that users cannot follow.
    text = re.sub(r"( on stack for %\S+) = .*?\. (?=Scoped allocation)", r"\1: ", text)
    text = re.sub(r" (It should not be possible|See https://).*", "", text)
    return text if len(text) <= REFUSAL_LENGTH else text[: REFUSAL_LENGTH - 1] + "…"


def _of_compiled(compiled: Any) -> Dumped:
    if not is_readable():
        raise BufdbError(
            "a compiled function is read as a proto, which needs the package protobuf: "
            "pip install 'bufdb[proto]'; or pass the result of .lower(...), which needs no package"
        )
    executable = compiled.runtime_executable()
    name, data, text = "", None, b""
    try:
        modules = [] if executable is None else executable.hlo_modules()
    except RuntimeError:  # it has instructions of a libtpu that is newer than this jaxlib
        name, data = _of_serialized(executable)
    else:
        if modules:
            name = modules[0].name
            data = _proto(compiled, executable, modules[0].as_serialized_hlo_module_proto())
        if data is not None:
            text = (compiled.as_text() or "").encode()
    if data is None:
        raise BufdbError(
            "this compiled function has no buffer assignment, as on some backends. "
            "Pass the result of .lower(...), "
            f"which is compiled again; or run the program with {FLAGS} and ingest DIR"
        )
    backend = _BACKENDS.get(_platform(compiled, executable), "")
    # Prefer the text: the proto's numbers depend on what the process compiled before.
    file_name = f"module_0000.{name}.{backend}after_optimizations.hlo.pb"
    return {f"{_hash(text or data)}/{file_name}": Bytes(file_name, data)}


def _proto(compiled: Any, executable: Any, module: bytes) -> bytes | None:
    """Return the module and its buffer assignment as one HloProto; None if JAX has no assignment.

    A compiled function does not give access to its source, so it cannot be compiled again.
    """
    stats = compiled.memory_analysis()
    data = bytes(
        getattr(stats, "serialized_hlo_proto", None) or b""
    )  # jaxlib before 0.5: all of it
    if data:
        return data
    assignment = bytes(getattr(stats, "serialized_buffer_assignment_proto", None) or b"")
    if assignment:
        return hlo_proto(module, assignment)
    # If compiled ahead of time, the executable has it, with the module.
    serialize = getattr(executable, "serialize", None)
    for record in records(serialize()) if serialize is not None else ():
        named = found_within(record, module)
        if named is not None and _is_of(module, named):
            return named
    return None


def _of_serialized(executable: Any) -> tuple[str, bytes | None]:
    """Return name and HloProto of a program that JAX cannot return as a module."""
    serialize = getattr(executable, "serialize", None)
    for record in records(serialize()) if serialize is not None else ():
        named = named_within(record)
        if named is not None:
            return named
    return "", None


def _is_of(module: bytes, data: bytes) -> bool:
    try:
        return names_of(data) == names_of(hlo_proto(module, b""))
    except UnreadableProto:
        return False


def _platform(compiled: Any, executable: Any) -> str:
    """Return JAX's name of the platform; an executable for absent hardware has no client."""
    client = getattr(executable, "client", None)
    if client is not None:
        return str(client.platform)
    shardings = jax_module().tree.leaves((compiled.output_shardings, compiled.input_shardings))
    devices = [device for sharding in shardings for device in sharding.device_set]
    return str(devices[0].platform) if devices else ""


def programs(dump: Path) -> Dumped:
    """Return the files of each program of a dump, named after its content; and logs.

    XLA numbers modules in the order in which a process compiles them, which does not identify a
    program: all become 0. The dump directory is not a user's option, so it is dropped.
    """
    if not dump.is_dir():  # its process ended before that
        return {}
    by_name: Dumped = {path.name: path for path in dump.glob(f"*{LOG}")}
    modules: dict[str, list[Path]] = {}
    for path in sorted(dump.iterdir()):
        number = _NUMBER.match(path.name)
        if path.is_file() and number is not None:
            modules.setdefault(number[0], []).append(path)
    for files in modules.values():
        texts = [path.read_bytes() for path in files if path.name.endswith(_CONTENT)]
        if len(texts) < len(_CONTENT):
            continue
        place = _hash(b"".join(texts))
        for path in files:
            name = _NUMBER.sub("module_0000", path.name, count=1)
            is_options = path.name.endswith(_OPTIONS)
            own = Bytes(path.name, content_of(path)) if is_options else path
            by_name[f"{place}/{name}"] = own
    return by_name


def content_of(path: Path) -> bytes:
    """Return the content of a file of a dump, without the name of the dump's folder."""
    content = path.read_bytes()
    if not path.name.endswith(_OPTIONS):
        return content
    folder, lines = os.fsencode(path.parent), content.splitlines(keepends=True)
    return b"".join(line for line in lines if folder not in line)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


# -- Dump everything that JAX compiles within a block of a running program -------------------------

COMPILER = "jax._src.compiler"
"""Module of JAX that calls the compiler."""
_FUNCTION = "get_compile_options"


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Make XLA dump to `folder` what JAX compiles in this process within the block.

    XLA reads XLA_FLAGS once, when a process first uses it, and JAX has no setting for options of
    all compilations: so the function that collects them is replaced while the block runs.

    Raises:
        BufdbError: this JAX has no such function; or nothing was compiled within the block.
    """
    outside = f"run the program with 'bufdb capture -- COMMAND', or with {FLAGS} and ingest DIR"
    try:
        compiler = importlib.import_module(COMPILER)
        original = getattr(compiler, _FUNCTION)
    except (ImportError, AttributeError) as error:
        raise BufdbError(
            f"JAX is not installed here, or has no {COMPILER}.{_FUNCTION} to put dump options "
            f"into; {outside}"
        ) from error

    def with_dumps(*arguments: Any, **options: Any) -> Any:
        returned = original(*arguments, **options)
        overrides = [*returned.env_option_overrides, *dump_options(folder).items()]
        returned.env_option_overrides = overrides
        return returned

    setattr(compiler, _FUNCTION, with_dumps)
    try:
        with without_persistent_cache():
            yield
    finally:
        setattr(compiler, _FUNCTION, original)
    if not programs(folder):
        raise BufdbError(
            "nothing was compiled in this block: a function that was compiled before is not "
            f"compiled again. Call jax.clear_caches() first; or {outside}"
        )
