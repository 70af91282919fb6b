"""Memory profiles of `jax.profiler` below a path, and what `bufdb.watch` writes next to them."""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bufdb.dumps.files import Problem, as_text, base_name, open_file, why_unreadable
from bufdb.dumps.place import Place
from bufdb.errors import BufdbError
from bufdb.proto import pprof
from bufdb.proto.pprof import Alive, Frame, Held, MemoryProfile, Stack
from bufdb.proto.reader import GZIP, UnreadableProto, unpacked
from bufdb.read import allocator_text
from bufdb.read.amount import Amount

SUFFIX = ".prof"
"""JAX's own documentation calls the file memory.prof."""
WATCHED = ".watch.json"
"""Instead of SUFFIX, the file in which bufdb.watch says what the profile does not."""
LOG = ".log"
"""Instead of SUFFIX, a log with a report of the allocator."""
LOGS = (".log", ".out", ".err")
"""Names of logs that may have one by themselves."""
MOST_BYTES = 128 << 20
"""Limit of a profile, decompressed; one of 100,000 stacks has a tenth of it."""
MOST_WATCHED_BYTES = 64 << 20
"""The same of what bufdb.watch writes next to it."""
MOST_LISTED = 200
"""Programs that bufdb.watch lists, the largest; only the failed one where a runtime lists none."""
NO_PROFILE = "no_memory_profile"
"""Code of the problem about a process that ended without one."""
_HEAD_BYTES = 4096
_BLOCK_BYTES = 1 << 20
_LINE_BYTES = 1 << 16
_NAMED = "the file next to it, {}, is not what bufdb.watch writes"
_REPORT = re.compile(allocator_text.TITLES.encode())
_DEVICE = re.compile(r"(?:[A-Z]+_|gpu_async_)(\d+)(?:_bfc)?")
_OWN_FILE = "bufdb/capture/watched.py"
_FIGURES = ("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "code_bytes")


@dataclass(frozen=True)
class MemoryFile:
    """A memory profile: a file, a member of an archive, or standard input."""

    path: Path | Place
    name: str
    """live_profiles.profile_name."""
    watched: Path | Place | None = None
    """The file of bufdb.watch next to it."""
    log: Path | Place | None = None
    is_log: bool = False
    """Whether there is no profile, and the file is a log with reports of allocators."""


@dataclass
class Taken:
    """A memory profile, and what was known when it was taken."""

    name: str
    profile: MemoryProfile
    moment: str | None = None
    elapsed_seconds: float | None = None
    mark: str | None = None
    snapshot_ordinal: int | None = None
    failed_program: str | None = None
    message: str | None = None
    requested_bytes: int | None = None
    limit_bytes: int | None = None
    arguments: dict[tuple[Alive, str | None], Held] | None = None
    """Arguments of the program that failed, by shape; None if that is not known."""
    why_unknown: str | None = None
    shapes: dict[Alive, dict[str | None, Held]] = field(default_factory=dict)
    """Of what is alive, as far as the shape is known."""
    holders: dict[tuple[Alive, str | None], tuple[str, str | None]] = field(default_factory=dict)
    """Variable that holds such arrays, with its file and line."""
    why_no_shapes: str | None = None
    programs: list[dict[str, Any]] = field(default_factory=list)
    """Rows of live_programs."""
    statistics: list[dict[str, Any]] = field(default_factory=list)
    """Rows of allocator_statistics."""

    def row(self) -> dict[str, Any]:
        """Return the row of live_profiles."""
        return {
            "moment": self.moment,
            "elapsed_seconds": self.elapsed_seconds,
            "mark": self.mark,
            "snapshot_ordinal": self.snapshot_ordinal,
            "failed_program_name": self.failed_program,
            "failure_message": self.message,
            "requested_bytes": self.requested_bytes,
            "limit_bytes": self.limit_bytes,
            "code_bytes": None if self.profile.unsized_count else self.profile.code_bytes,
            "program_count": self._program_count(),
            "arguments_unknown_reason": self.why_unknown,
            "shapes_unknown_reason": self.why_no_shapes,
        }

    def arrays(self) -> Iterator[dict[str, Any]]:
        """Yield rows of live_arrays, with the stack as `stack`."""
        is_known = self.arguments is not None
        of_stack = _added((alive, held) for (alive, _), held in (self.arguments or {}).items())
        for alive, held in self.profile.arrays.items():
            shapes = self.shapes.get(alive, {None: held})
            for shape, of in shapes.items():
                passed = (self.arguments or {}).get((alive, shape), Held())
                if len(shapes) == 1:
                    passed = of_stack.get(alive, passed)
                name, source = self.holders.get((alive, shape), (None, None))
                yield {
                    "device": alive.device,
                    "stack": alive.stack,
                    "shape": shape,
                    "total_bytes": of.total_bytes,
                    "array_count": of.array_count,
                    "argument_bytes": min(passed.total_bytes, of.total_bytes) if is_known else None,
                    "argument_count": min(passed.array_count, of.array_count) if is_known else None,
                    "holder_name": name,
                    "holder_source": source,
                }

    def _program_count(self) -> int:
        """Return how many programs were loaded: a profile of a CPU counts none."""
        listed = len(self.programs)
        is_complete = 1 < listed < MOST_LISTED
        return listed if is_complete else max(self.profile.program_count, listed)


def is_memory_profile(path: Path | Place) -> bool:
    """Return whether one file is a memory profile by its beginning, or a damaged one by its name.

    Raises:
        OSError: it cannot be read.
    """
    is_named = path.name.endswith(SUFFIX)
    with open_file(path) as file:
        head = file.read(_HEAD_BYTES) or b""
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return is_named
    return pprof.begins(head) or (is_named and head[:1] in (b"", b"\x0a"))


def below(files: Mapping[str, Path | Place], odd: list[Problem]) -> Iterator[MemoryFile]:
    """Yield the memory profiles among the files of a directory or archive; add unreadable files."""
    for name, path in sorted(files.items()):
        if name.endswith(WATCHED) and name.removesuffix(WATCHED) + SUFFIX not in files:
            odd += _without_profile(name, path, files)
        if not name.endswith(SUFFIX):
            continue
        try:
            is_one = is_memory_profile(path)
        except OSError as error:
            odd.append(Problem(name, "error", "unreadable_file", why_unreadable(error)))
            continue
        if is_one:
            stem = name.removesuffix(SUFFIX)
            yield MemoryFile(path, name, files.get(stem + WATCHED), files.get(stem + LOG))
    for name, path in sorted(files.items()):
        if name.endswith(LOGS) and name.removesuffix(LOG) + SUFFIX not in files:
            log = log_of(path, name)
            if log is not None:
                yield log


def log_of(path: Path | Place, name: str) -> MemoryFile | None:
    """Return a file as a log with reports of allocators; None if it has none.

    It is read as a dump, too, where it is reported if it cannot be read.
    """
    rest = b""
    with suppress(OSError), open_file(path) as file:
        while block := file.read(_BLOCK_BYTES):
            if _REPORT.search(rest + block):
                return MemoryFile(path, name, is_log=True)
            rest = block[-_HEAD_BYTES:]
    return None


def _without_profile(
    name: str, path: Path | Place, files: Mapping[str, Path | Place]
) -> Iterator[Problem]:
    """Yield what bufdb.watch wrote of a process that had no time for a profile at its end."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        how = json.loads(_content(path, MOST_WATCHED_BYTES)).get("ended")
        if isinstance(how, str):
            there = f"no memory profile{_last_snapshot(name.removesuffix(WATCHED), files)}"
            yield Problem(name, "notice", NO_PROFILE, f"{as_text(how)}: {there}")


def _last_snapshot(stem: str, files: Mapping[str, Path | Place]) -> str:
    """Return which snapshot is the last account of a process, if there is one."""
    taken = [n for n in files if n.startswith(f"{stem}-") and n.endswith(SUFFIX)]
    if not taken:
        return ""
    last = max(taken, key=lambda one: (len(one), one))
    about = files.get(last.removesuffix(SUFFIX) + WATCHED)
    if about is None:
        return ""
    seconds = _seconds(json.loads(_content(about, MOST_WATCHED_BYTES))["elapsed_seconds"])
    return f" of its end; the last snapshot is of {seconds:.1f} s after it began"


def named(path: Path | Place) -> MemoryFile:
    """Return a memory profile that was named itself, with what is next to it."""
    if not isinstance(path, Path):
        return MemoryFile(path, path.name)
    stem = path.name.removesuffix(SUFFIX)
    near = [path.with_name(stem + suffix) for suffix in (WATCHED, LOG)]
    watched, log = (one if one.is_file() else None for one in near)
    return MemoryFile(path, as_text(path.name), watched, log)


def load(file: MemoryFile) -> Taken:
    """Read a memory profile, and the files of bufdb.watch next to it.

    Raises:
        BufdbError: it is of something else, or damaged, or cannot be read.
    """
    where = as_text(str(file.path))
    try:
        if file.path.stat().st_size > MOST_BYTES:
            raise UnreadableProto(f"it has more than {MOST_BYTES >> 20} MiB, as no memory profile")
        profile = pprof.read(unpacked(_content(file.path), MOST_BYTES))
    except UnreadableProto as error:
        raise BufdbError(f"{where}: {error}") from error
    except OSError as error:
        raise BufdbError(f"{where} cannot be read: {error.strerror}") from error
    taken = Taken(file.name, _without_bufdb(profile))
    if file.watched is not None:
        try:
            _add_watched(taken, json.loads(_content(file.watched, MOST_WATCHED_BYTES)))
        except (
            *(OSError, ValueError, KeyError, TypeError, AttributeError),
            *(OverflowError, RecursionError),
        ) as error:
            raise BufdbError(
                f"{where}: {_NAMED.format(base_name(file.watched.name))}; remove it to read the "
                "profile alone"
            ) from error
    else:
        taken.why_unknown = (
            "the program wrote the profile itself: bufdb.watch or bufdb capture --watch sees the "
            "call that fails"
        )
        taken.why_no_shapes = "the program wrote the profile itself: it has no shapes"
    if file.log is not None:
        try:
            _add_log(taken, _lines(file.log))
        except OSError as error:
            name = as_text(str(file.log))
            raise BufdbError(f"{name} cannot be read: {error.strerror}") from error
    return taken


def _content(path: Path | Place, most_bytes: int = MOST_BYTES) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, or is more than some bytes.
    """
    parts: list[bytes] = []
    with open_file(path) as file:
        while block := file.read(_BLOCK_BYTES):
            parts.append(block)
            most_bytes -= len(block)
            if most_bytes < 0:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(parts)


def _lines(path: Path | Place) -> Iterator[str]:
    """Yield the lines of a log, which may be larger than memory; long ones are cut off."""
    rest = b""
    with open_file(path) as file:
        while block := file.read(_BLOCK_BYTES):
            *whole, rest = (rest + block).split(b"\n")
            rest = rest[:_LINE_BYTES]
            for line in whole:
                yield from line[:_LINE_BYTES].decode("utf-8", "replace").splitlines()
    yield from rest.decode("utf-8", "replace").splitlines()


Value = TypeVar("Value", int, str)
Key = TypeVar("Key")


def _typed(value: Any, kind: type[Value]) -> Value | None:
    """Return a value of JSON that must be of a type or null."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(type(value))
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise ValueError(value)
    typed: Value | None = as_text(value) if isinstance(value, str) else value
    return typed


def _figure(value: Any) -> int | None:
    """Return a number of bytes of JSON; None for null and for PJRT's "unknown", -1."""
    figure = None if value == -1 else _typed(value, int)
    if figure is not None and not 0 <= figure < pprof.MOST:
        raise ValueError(value)
    return figure


def _add_watched(taken: Taken, account: Mapping[str, Any]) -> None:
    moment = account["moment"]
    if moment not in ("failure", "end", "snapshot"):
        raise ValueError(moment)
    taken.moment = moment
    if (elapsed := account.get("elapsed_seconds")) is not None:
        taken.elapsed_seconds = _seconds(elapsed)
    taken.mark = _typed(account.get("mark"), str)
    taken.snapshot_ordinal = _typed(account.get("snapshot"), int)
    is_snapshot = taken.snapshot_ordinal is not None and taken.snapshot_ordinal >= 0
    if (moment == "snapshot") != is_snapshot:
        raise ValueError(taken.snapshot_ordinal)
    taken.failed_program = _typed(account["failed_program"], str)
    taken.message = _typed(account["message"], str)
    taken.requested_bytes = _typed(account["requested_bytes"], int)
    taken.limit_bytes = _typed(account["limit_bytes"], int)
    taken.why_unknown = _typed(account["arguments_unknown_reason"], str)
    if account["arguments"] is not None:
        arguments = [(_alive(one), _shape(one)) for one in account["arguments"]]
        taken.arguments = _added(((alive, shape), held) for (alive, held), shape in arguments)
        if not {alive for alive, _ in taken.arguments} <= taken.profile.arrays.keys():
            # Alive under another stack, so it would count as a bystander.
            taken.arguments = None
            taken.why_unknown = "an argument's stack is not in the profile"
    for alive, lost in map(_alive, account["lost"]):
        # What a failed program was to make counts in the profile, and has no memory.
        held = taken.profile.arrays.get(alive)
        if held is None or held.total_bytes < lost.total_bytes:
            raise ValueError(alive)
        held.total_bytes -= lost.total_bytes
        # A profile may count one buffer where an array is several shards: its bytes decide.
        held.array_count = max(held.array_count - lost.array_count, min(held.total_bytes, 1))
        if held.array_count == 0:
            del taken.profile.arrays[alive]
    _add_shapes(taken, account.get("shapes"))
    for ordinal, one in enumerate(account["programs"]):
        row = {"program_ordinal": ordinal, "program_name": as_text(str(one["name"]))}
        row["is_failed"] = one["is_failed"] is True
        taken.programs.append(row | {name: _figure(one[name]) for name in _FIGURES})
    for device, statistics in account["statistics"].items():
        exact = {str(name): Amount(int(value), 0) for name, value in statistics.items()}
        taken.statistics += _rows(device, exact)


def _add_shapes(taken: Taken, parts: Iterable[Mapping[str, Any]] | None) -> None:
    """Add the shapes of arrays; sums that are not those of the profile leave an unknown rest."""
    if parts is None:
        taken.why_no_shapes = "an older bufdb.watch wrote it, without shapes"
        return
    of_stack: dict[Alive, dict[str | None, Held]] = {}
    for one in parts:
        alive, held = _alive(one)
        shape = _shape(one)
        if shape is None:
            raise TypeError(one)
        shapes = of_stack.setdefault(alive, {})
        shapes[shape] = _sum(shapes.get(shape, Held()), held)
        if one.get("holder") is not None:
            name, source = one["holder"]
            named = as_text(str(name)), _typed(source, str)
            taken.holders.setdefault((alive, shape), named)
    passed: dict[Alive, set[str | None]] = {}
    for alive, shape in taken.arguments or {}:
        passed.setdefault(alive, set()).add(shape)
    rest_count = 0
    for alive, held in taken.profile.arrays.items():
        shapes = of_stack.get(alive, {})
        left = Held(
            held.array_count - sum(one.array_count for one in shapes.values()),
            held.total_bytes - sum(one.total_bytes for one in shapes.values()),
        )
        is_less = left.array_count < 0 or left.total_bytes < 0
        if is_less or not shapes or not passed.get(alive, set()) <= shapes.keys():
            # More than is alive, or none: which of them are counted is not known.
            rest_count += held.array_count
            continue
        if left != Held():
            shapes[None] = left
            rest_count += left.array_count
        taken.shapes[alive] = shapes
    if rest_count or taken.profile.arrays.keys() - taken.shapes.keys():
        taken.why_no_shapes = (
            f"{rest_count} arrays of the profile are not those that were looked at just after it"
        )


def _shape(fields: Mapping[str, Any]) -> str | None:
    return _typed(fields.get("shape"), str)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ValueError(value)
    return float(value)


def _sum(one: Held, other: Held) -> Held:
    return Held(one.array_count + other.array_count, one.total_bytes + other.total_bytes)


def _without_bufdb(profile: MemoryProfile) -> MemoryProfile:
    """Return a profile without bufdb's own frame in calls that it sees."""
    arrays = profile.arrays.items()
    without = ((Alive(one.device, _outside(one.stack)), held) for one, held in arrays)
    return replace(profile, arrays=_added(without))


def _added(arrays: Iterable[tuple[Key, Held]]) -> dict[Key, Held]:
    """Return the sums of each device and stack: several may be the same without bufdb's frame."""
    sums: dict[Key, Held] = {}
    for key, held in arrays:
        sums[key] = _sum(sums.get(key, Held()), held)
    return sums


def _outside(stack: Stack) -> Stack:
    return tuple(frame for frame in stack if not frame.source_file.endswith(_OWN_FILE))


def _alive(fields: Mapping[str, Any]) -> tuple[Alive, Held]:
    stack = _outside(
        tuple(
            # The profile has names without the functions and classes around them.
            Frame(str(file), str(function).rpartition(".")[2], line if line else None)
            for file, function, line in fields["stack"]
        )
    )
    held = Held(int(fields["count"]), int(fields["bytes"]))
    if held.array_count < 0 or held.total_bytes < 0:
        raise ValueError(held)
    return Alive(str(fields["device"]), stack), held


def _rows(device: str, statistics: Mapping[str, Amount]) -> list[dict[str, Any]]:
    """Return the statistics of a device, without those that have no bound: a limit of 2^63 - 1."""
    return [
        {
            "device": as_text(device),
            "statistic_name": as_text(name),
            "statistic_value": value.size_bytes,
            "slack_bytes": value.slack_bytes,
        }
        for name, value in statistics.items()
        if 0 <= value.size_bytes < pprof.MOST
    ]


def statistics_of(log: Path | Place) -> list[dict[str, Any]]:
    """Return the rows of allocator_statistics of a log without a profile.

    Raises:
        OSError: it cannot be read.
    """
    reports = allocator_text.read(_lines(log))
    return [row for one in reports for row in _rows(one.allocator, one.statistics)]


def _add_log(taken: Taken, log: Iterable[str]) -> None:
    """Add what a log says of allocators that JAX itself does not."""
    has = {(row["device"], row["statistic_name"]) for row in taken.statistics}
    devices = sorted({alive.device for alive in taken.profile.arrays} | {d for d, _ in has})
    for report in allocator_text.read(log):
        device = _device_of(report.allocator, devices)
        for row in _rows(device, report.statistics):
            if (device, row["statistic_name"]) not in has:
                taken.statistics.append(row)
                has.add((device, row["statistic_name"]))


def _device_of(allocator: str, devices: Sequence[str]) -> str:
    """Return JAX's name of the device of an allocator such as GPU_0_bfc; else the allocator's.

    That of memory for collectives has a part of the device's memory for itself.
    """
    number = _DEVICE.fullmatch(allocator)
    matching = [name for name in devices if number and name.rpartition(":")[2] == number[1]]
    return matching[0] if len(matching) == 1 else allocator
