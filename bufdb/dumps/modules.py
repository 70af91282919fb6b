"""Which files belong to one module, and which modules lack their buffer assignment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bufdb.dumps.files import (
    BEFORE,
    BUFFER_KINDS,
    COMPANIONS,
    MESSAGE_KIND,
    PARTS,
    PROTO,
    PROTO_SUFFIXES,
    STEM,
    XLA_NAME,
    DumpFile,
    ModuleFiles,
    Problem,
    base_name,
    before_of,
    open_file,
    parse_stem,
    stem_of,
    why_unreadable,
)
from bufdb.dumps.mixed import mixed
from bufdb.dumps.pasted import encoding_of, plain
from bufdb.dumps.place import Place
from bufdb.proto import reader
from bufdb.read import boundaries

_SNIFF_BYTES = 4096
_OPTIMIZED = re.compile(
    r"(?P<stem>(?:\d+\.)?module_\d{4,}\..*?after_optimizations)"
    r"\.(?P<extension>txt|hlo\.pb(?:\.gz)?|riegeli)"
)
_BESIDE = re.compile(r"(?:compile_options|topology)\.pb(?:\.gz)?")
"""What XLA writes into a directory of its own for each module (section 2), whatever it is named."""
_MODULE = re.compile(r"module_\d+")
_LONGEST_NAME = 255
"""Bytes that a file's name may have; XLA tests for it before it adds the suffixes (section 2)."""

NOT_A_DUMP = "not_a_dump"
"""Code of the problem that says what a file is instead."""
TIMES_SUFFIXES = (".xplane.pb", ".xplane.pb.gz")
"""Profiles of the times of instructions (`bufdb.dumps.profiles`)."""
TIMES = (
    "it is a profile of jax.profiler, which times instructions: read it with bufdb profile PATH "
    "--run RUN, or bufdb ingest DUMPS --profile PATH"
)
NO_BUFFERS = "no_buffer_assignment"
"""Code of the problem about modules without buffer assignment."""
PROTOBUF_ONLY = (
    "dumped only as protobuf, without its buffer assignment: add --xla_dump_hlo_as_text to "
    "XLA_FLAGS"
)
PACKAGE_MISSING = (
    f"dumped only as protobuf: {reader.PACKAGE_MISSING}; or dump again with "
    "--xla_dump_hlo_as_text in XLA_FLAGS"
)
CACHED = (
    "from a compilation cache, which compiles nothing: run with JAX_ENABLE_COMPILATION_CACHE=false"
)
TOO_LONG = "with names too long for XLA to write the files: give the jitted functions shorter names"
NOT_COPIED = (
    "without their *-buffer-assignment.txt files, which XLA writes next to them: "
    "take the whole dump directory, or dump again with XLA_FLAGS=--xla_dump_to=DIR"
)


def modules_of(paths: dict[str, Path | Place], problems: list[Problem]) -> list[ModuleFiles]:
    """Return the modules that files below a directory belong to, in order of their keys."""
    modules: dict[str, ModuleFiles] = {}
    before: dict[str, DumpFile] = {}
    for name in sorted(paths, key=_depth_first):
        try:
            dump_files = list(_dump_files(paths[name], name))
        except OSError as error:
            problems.append(Problem(name, "error", "unreadable_file", why_unreadable(error)))
            continue
        for file in dump_files:
            if file.kind == BEFORE:
                before.setdefault(file.name, file)
                continue
            stem = stem_of(file.name)
            module = modules.setdefault(stem, ModuleFiles(stem))
            if file.kind in module.files:
                module = modules.setdefault(file.name, ModuleFiles(file.name))
            module.files[file.kind] = file
    unread = _add_protos(modules, paths, problems)
    taken = {file.name for module in modules.values() for file in module.files.values()}
    others = {name: path for name, path in paths.items() if name not in taken}
    for module in modules.values():
        _add_companions(module, others, before)
    kinds = (*BUFFER_KINDS, PROTO, MESSAGE_KIND)
    whole = {key: m for key, m in modules.items() if any(k in m.files for k in kinds)}
    without = _without_buffers(paths, whole, unread)
    if without is not None:
        problems.append(Problem(None, "notice", NO_BUFFERS, without))
    problems += mixed(whole.values())
    return [whole[key] for key in sorted(whole)]


def _add_protos(
    modules: dict[str, ModuleFiles], paths: dict[str, Path | Place], problems: list[Problem]
) -> dict[str, str | None]:
    """Give modules their protos, and a module of its own to a proto without text.

    Returns:
        By name, why a proto cannot be read although it has a buffer assignment; None for those that
        an problem reports.
    """
    unread: dict[str, str | None] = {}
    skipped: list[str] = []
    for name in sorted(filter(_may_be_proto, paths), key=_depth_first):
        folder, slash, file_name = name.rpartition("/")
        stem = f"{folder}{slash}{stem_of(file_name)}"
        has_text = stem in modules
        if name.endswith(TIMES_SUFFIXES):
            problems.append(Problem(name, "info", NOT_A_DUMP, TIMES))
            continue
        try:
            what = _what_proto(paths[name])
        except OSError as error:
            problems.append(Problem(name, "error", "unreadable_file", why_unreadable(error)))
            continue
        if what is not None:
            is_whole = what == reader.NO_ASSIGNMENT
            if not is_whole or not _OPTIMIZED.fullmatch(file_name):
                severity = "notice" if is_whole else "error"
                problems.append(Problem(name, severity, "unreadable_proto", what))
                unread[name] = None
        elif not reader.is_readable():
            if has_text:
                skipped.append(name)
            else:
                unread[name] = PACKAGE_MISSING
        else:
            module = modules.setdefault(stem, ModuleFiles(stem))
            if PROTO in module.files:
                module = modules.setdefault(name, ModuleFiles(name))
            module.files[PROTO] = DumpFile(paths[name], name, PROTO)
    if skipped:
        message = f"{len(skipped)} protos next to text were not read: {reader.PACKAGE_MISSING}"
        problems.append(Problem(skipped[0], "info", "proto_not_read", message))
    return unread


def _may_be_proto(name: str) -> bool:
    """Return whether a name is a serialized module's: not of another stage or message.

    Nor a snapshot that XLA writes each time that a program runs: it has the arguments.
    """
    file_name = name.rpartition("/")[2]
    if not file_name.endswith(PROTO_SUFFIXES) or _BESIDE.fullmatch(file_name):
        return False
    return _OPTIMIZED.fullmatch(file_name) is not None or XLA_NAME.match(file_name) is None


def _what_proto(path: Path | Place) -> str | None:
    """Return None for a module with its buffer assignment, else what a file is instead."""
    with open_file(path) as file:
        data = file.read() or b""
    try:
        return reader.why_no_assignment(reader.unpacked(data))
    except reader.UnreadableProto as error:
        return str(error)


def _depth_first(name: str) -> str:
    """Return the sort key of a walk that enters a directory where its name sorts."""
    return name.replace("/", "\0")


def _without_buffers(
    paths: dict[str, Path | Place], modules: dict[str, ModuleFiles], unread: dict[str, str | None]
) -> str | None:
    """Return one line about modules that have only optimized HLO, with what to do."""
    compiled = {_module_id(key) for key in modules}
    reasons: dict[tuple[str, str], str] = {}
    example: dict[str, str] = {}
    for name in sorted(paths):
        module = _module_id(name)
        if module in compiled:
            continue
        if name in unread:
            reason = unread[name]
        else:
            match = _OPTIMIZED.fullmatch(base_name(name))
            reason = None if match is None else _why_no_buffers(match["stem"], match["extension"])
        if reason is None:
            continue
        # Text next to the protobuf says more: it was asked for, and so were the buffers.
        if reason == PROTOBUF_ONLY and module in reasons:
            continue
        reasons[module] = reason
        example.setdefault(reason, name)
    if not reasons:
        return None
    parts = []
    for reason, count in Counter(reasons.values()).items():
        parts.append(f"{count} {reason} (such as {example[reason]})")
    return "modules that have optimized HLO but no buffer assignment: " + "; ".join(parts)


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
    """Return directory and `module_0007`, which identify the files of a compilation."""
    file = base_name(name)
    folder = name.removesuffix(file)
    match = _MODULE.search(file)
    return folder, match[0] if match else file


def _dump_files(path: Path | Place, name: str) -> Iterator[DumpFile]:
    for suffix, kind in PARTS.items():
        if name.endswith(suffix):
            yield DumpFile(path, name, kind)
            return
    if XLA_NAME.match(base_name(name)):
        if name.endswith(f".{BEFORE}.txt"):
            yield DumpFile(path, name, BEFORE)
        return

    with open_file(path) as file:
        head = file.read(_SNIFF_BYTES) or b""
    from bufdb.dumps.captured import CAPTURED, FRAME, parts_of  # NumPy, for logs alone

    kind_found = None if FRAME.search(head) else boundaries.kind_of(plain(head))
    if kind_found is not None:
        yield DumpFile(path, name, kind_found)
    elif path.suffix in CAPTURED and (b"\0" not in head or encoding_of(head) is not None):
        yield from parts_of(path, name)


def _add_companions(
    module: ModuleFiles, names: dict[str, Path | Place], before: dict[str, DumpFile]
) -> None:
    """Add the files next to the buffer files: HLO texts, memory report, compiler options.

    Those without a backend in their name are of every module of their number and name.
    """
    hlo = f"{module.key}.txt"
    if "hlo" not in module.files and hlo in names:
        module.files["hlo"] = DumpFile(names[hlo], hlo, "hlo")
    report = f"{module.key}-memory-usage-report.txt"
    if report in names:
        module.files["memory_report"] = DumpFile(names[report], report, "memory_report")
    stem = base_name(module.key)
    folder = module.key.removesuffix(stem)
    stem_before = before_of(stem)
    if stem_before is not None and f"{folder}{stem_before}" in before:
        module.files[BEFORE] = before[f"{folder}{stem_before}"]
    match = STEM.fullmatch(stem)
    if match is None:
        return
    whole = re.sub(r"^\d+\.(?=module_)", "", stem)
    if match["stage"]:
        whole = whole[: -len(match["stage"]) - 1]
    for kind, suffix in COMPANIONS.items():
        name = f"{folder}{whole}{suffix}"
        if name in names:
            module.files[kind] = DumpFile(names[name], name, kind)
