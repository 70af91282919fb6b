"""Serialized modules: the wire format, and the messages that are asked of it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import operator
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

# -- The wire format of protobuf, as far as it takes no package: which message some bytes hold -----

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODULE, _ASSIGNMENT = 1, 3
"""Fields of HloProto."""
_MODULE_BEGINS = (b"\x0a", b"\x12", b"\x1a")
"""Keys of the first fields of a module, and of an HloProto's; a value begins with a number."""
NO_ASSIGNMENT = "it is a serialized HLO module without buffer assignment"
_GPU_MODULE, _GPU_ASSIGNMENT = 1, 2
"""Fields of XLA's GpuExecutableProto: the module with its configuration, whose first field it is,
and the buffer assignment."""
_NAME = re.compile(rb"\x0a([\x01-\x7f])([A-Za-z_][A-Za-z0-9_.\-]*)\x12")
"""How a module begins: its name, then the entry's."""
_HIGHEST = 30
"""These messages have no fields beyond this number, and none that is a number."""


def hlo_proto(module: bytes, assignment: bytes) -> bytes:
    """Return a serialized HloProto of a serialized HloModuleProto and BufferAssignmentProto.

    A live function has both: `runtime_executable().hlo_modules()[0]` the module, its
    `memory_analysis()` the assignment. They belong together if the values of the assignment name
    instructions of the module, which is checked when they are read.
    """
    return _field(_MODULE, module) + _field(_ASSIGNMENT, assignment)


def fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (number, wire type, start, stop) of a message's fields, as far as they make sense.

    A field that extends beyond the end is given with the stop that it claims.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if at < 0 or number == 0:
            return
        start = at
        if kind == _VARINT:
            _, at = varint(data, at)
        elif kind == _BYTES:
            size, start = varint(data, at)
            at = start + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return
        if start < 0 or at < 0:
            return
        yield number, kind, start, at


def why_no_assignment(data: bytes) -> str | None:
    """Return what bytes are instead of an HloProto, or its snapshot, with a buffer assignment.

    None if they have one, as far as their first levels say: nothing below is read.
    """
    if not data:
        return "it is empty"
    parts = _parts(data)
    if parts is None:
        return "it is not a serialized HLO module"
    if parts.stop != len(data):
        return "it was cut off, or is not a serialized HLO module"
    if parts.is_repeated or data[parts.module[0] : parts.module[0] + 1] not in _MODULE_BEGINS:
        return (
            "it is a buffer assignment without its module (bufdb.proto.reader.hlo_proto joins "
            "them), or is not a serialized HLO module"
        )
    if _is_snapshot(data, parts.module):  # its third field is what the program gave
        return why_no_assignment(data[parts.module[0] : parts.module[1]])
    return None if parts.assignment else NO_ASSIGNMENT


def snapshot_part(data: bytes) -> bytes | None:
    """Return the HloProto inside a serialized HloSnapshot; None if the bytes are no snapshot."""
    parts = _parts(data)
    if parts is None or not _is_snapshot(data, parts.module):
        return None
    return data[parts.module[0] : parts.module[1]]


def found_within(data: bytes, module: bytes) -> bytes | None:
    """Return the HloProto of a module with its buffer assignment, inside some other record.

    A serialized executable has them: that of a TPU an HloProto somewhere in a record, that of a GPU
    in a record with two fields for them. None if there is none, as far as first levels say.

    Args:
        data: the record.
        module: the module, serialized: with its name it begins in `data` too.
    """
    head = next(fields(module), None)
    if head is None or head[:2] != (_MODULE, _BYTES):
        return None
    return _in_gpu_executable(data, module[: head[3]]) or _anywhere(data, module[: head[3]])


def named_within(data: bytes) -> tuple[str, bytes] | None:
    """Return a module's name and HloProto, found as by `found_within`; None without one."""
    for match in _NAME.finditer(data):
        if len(match[2]) == match[1][0]:
            head = data[match.start() : match.end() - 1]
            proto = _anywhere(data, head)
            if proto is not None:
                return match[2].decode(), proto
    return None


def _in_gpu_executable(data: bytes, head: bytes) -> bytes | None:
    parts_by_number = {
        n: data[start:stop] for n, kind, start, stop in fields(data) if kind == _BYTES
    }
    outer, assignment = (
        parts_by_number.get(_GPU_MODULE, b""),
        parts_by_number.get(_GPU_ASSIGNMENT, b""),
    )
    first = next(fields(outer), None)
    if first is None or first[:2] != (_MODULE, _BYTES) or not _is_whole(data):
        return None
    module = outer[first[2] : first[3]]
    is_one = module.startswith(head) and _is_whole(module) and _is_whole(assignment)
    return hlo_proto(module, assignment) if is_one and assignment else None


def _anywhere(data: bytes, head: bytes) -> bytes | None:
    at = -1
    while (at := data.find(head, at + 1)) >= 0:
        for width in range(1, min(at, 6)):
            size, after = varint(data, at - width)
            begin, stop = at - width - 1, at + size
            if after == at and data[begin] == _MODULE << 3 | _BYTES and stop <= len(data):
                end = _assignment_end(data, stop)
                if end is not None and _is_whole(data[at:stop]):
                    return data[begin:end]
    return None


def _assignment_end(data: bytes, at: int) -> int | None:
    """Return where the buffer assignment ends, which is one of the next two fields, or None."""
    for number, kind, start, stop in itertools.islice(fields(data[at:]), 2):
        if kind != _BYTES or at + stop > len(data):
            return None
        if number == _ASSIGNMENT:
            is_one = stop > start and _is_whole(data[at + start : at + stop])
            return at + stop if is_one else None
    return None


def _is_whole(data: bytes) -> bool:
    """Return whether fields fill all of a message."""
    end = 0
    for number, _, _, stop in fields(data):
        if number > _HIGHEST:
            return False
        end = stop
    return end == len(data)


class _Parts(NamedTuple):
    """The first level of a message that may be an HloProto or a snapshot."""

    module: tuple[int, int]
    """Span of the first field."""
    assignment: int
    """Bytes of the last third field, 0 if there is none."""
    is_repeated: bool
    """Whether there are several first fields."""
    stop: int
    """Where the last field ends that makes sense, or claims to end."""


def _parts(data: bytes) -> _Parts | None:
    """Return the first level; None if it cannot be one of the two."""
    module, assignment, end, is_repeated = None, 0, 0, False
    for number, kind, start, stop in fields(data):
        if kind != _BYTES or number > _HIGHEST:
            return None
        if number == _MODULE:
            is_repeated = module is not None
            module = module or (start, stop)
        elif number == _ASSIGNMENT:
            assignment = stop - start
        end = stop
    return None if module is None else _Parts(module, assignment, is_repeated, end)


def _is_snapshot(data: bytes, first: tuple[int, int]) -> bool:
    """Return whether the first field's content begins with a module, not with its name."""
    inside = data[first[0] : min(first[1], first[0] + 64)]
    for number, kind, start, stop in fields(inside):
        # A module begins with its name, a HloProto with a module, whose first field is a name.
        name = inside[start : min(stop, start + 1)]
        return number == _MODULE and kind == _BYTES and name == bytes([_MODULE << 3 | _BYTES])
    return False


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _asvarint(len(data)) + data


def _asvarint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; -1 if it does not."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return 0, -1
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
    return 0, -1


# -- Bytes of a file as an HloProto, plain, compressed or in a snapshot (format section 10) --------
#
# The package protobuf comes with the extra `bufdb[proto]`; nothing here imports it before a proto
# is read.

GZIP = b"\x1f\x8b"
MAX_BYTES = 1 << 31
"""A message has at most 2 GiB."""
MOST_BYTES = 384 << 20
FREE_BYTES = 64 << 20
MOST_RATIO = 100
"""A compressed file is unpacked to this many bytes at most, and beyond `FREE_BYTES` to this many
times its size: XLA's are compressed 5 to 15 times, and the result is held in memory."""
PACKAGE_MISSING = (
    "reading it needs the package protobuf, which is not installed: pip install 'bufdb[proto]'"
)
DAMAGED = "it is damaged: a part of it cannot be parsed"
NO_PROTO = "it is not an HloProto; it may have been cut off or be another message"
INT32, BOOL = 1, 7
"""Types of fields as descriptors number them."""


class UnreadableProto(Exception):
    """Why some bytes cannot be read as an HloProto, in one sentence without a name."""


class NotUnderstood(UnreadableProto):
    """An instruction is in a form that bufdb does not know: the file may well be sound."""

    def __init__(self, name: str, opcode: str, error: Exception) -> None:
        """Name the instruction, and what went wrong with it."""
        why = f"{type(error).__name__}: {error}"
        super().__init__(f"bufdb does not understand %{name[:80]}, {opcode[:80]}, in it ({why})")


@contextlib.contextmanager
def resolving() -> Iterator[None]:
    """Report an id in a proto that leads to nothing as damage, within the block.

    Raises:
        UnreadableProto: there is one.
    """
    try:
        yield
    except KeyError as error:
        raise UnreadableProto(f"it is damaged: {error} is missing") from error


@cache
def is_readable() -> bool:
    """Return whether the package protobuf is installed."""
    try:
        return importlib.util.find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        return False


def unpacked(data: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file, decompressed if they are compressed.

    Args:
        data: the bytes.
        most_bytes: limit of what is decompressed.

    Raises:
        UnreadableProto: the compressed bytes are damaged, or hold more than is unpacked.
    """
    if not data.startswith(GZIP):
        return data
    most = min(most_bytes, max(FREE_BYTES, MOST_RATIO * len(data)))
    parts: list[bytes] = []
    while data.startswith(GZIP):
        stream = zlib.decompressobj(wbits=31)
        try:
            parts.append(stream.decompress(data, most + 1))
        except zlib.error as error:
            raise UnreadableProto(f"it does not decompress: {error}") from error
        most -= len(parts[-1])
        if most < 0:
            raise UnreadableProto(
                f"it decompresses to more than {MOST_RATIO} times its size, or more than "
                f"{most_bytes >> 20} MiB; unpack it first if it can be trusted"
            )
        if not stream.eof:
            raise UnreadableProto("it was cut off: the compressed data have no end")
        data = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read(data: bytes, kind: str = "HloProto") -> Any:
    """Return the HloProto in the bytes of a `.hlo.pb`, a `.hlo.pb.gz` or a snapshot.

    Args:
        data: the bytes.
        kind: name of the message; HloProtoParts is the same in parts.

    Raises:
        UnreadableProto: the package is missing, or the bytes are no such message.
    """
    if not is_readable():
        raise UnreadableProto(PACKAGE_MISSING)
    data = unpacked(data)
    inside = snapshot_part(data)
    return parsed(kind, data if inside is None else inside, NO_PROTO)


def computations_of(every: Iterable[bytes]) -> Iterator[Any]:
    """Yield the parsed heads of serialized computations, their instructions in parts."""
    try:
        # One at a time: each holds all the bytes that it was read from.
        yield from map(_message("HloComputationParts").FromString, every)
    except _decode_error() as error:
        raise UnreadableProto(DAMAGED) from error


def instructions_of(computation: bytes) -> Any:
    """Return the instructions of a serialized computation."""
    return parsed("HloComputationProto", computation).instructions


def names_of(data: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Return the computations of an HloProto, and the instructions in each, by their names.

    Raises:
        UnreadableProto: the bytes are no such message.
    """
    computations = read(data).hlo_module.computations
    heads = zip(computations_of(computations), computations, strict=True)
    return [(head.name, [x.name for x in instructions_of(one)]) for head, one in heads]


@cache
def _message(kind: str) -> Any:
    """Return a generated class; their module makes all of them when it is imported."""
    return operator.attrgetter(kind)(importlib.import_module("bufdb.proto.hlo_fields_pb2"))


def fields_of(kind: str) -> Mapping[str, Any]:
    """Return what descriptors say of the fields of a message, by their names."""
    descriptors: Mapping[str, Any] = _message(kind).DESCRIPTOR.fields_by_name
    return descriptors


def shape_of(data: bytes) -> Any:
    """Parse a serialized shape."""
    return parsed("ShapeProto", data)


def instruction_of(data: bytes) -> Any:
    """Parse a serialized instruction."""
    return parsed("HloInstructionProto", data)


def literal_of(data: bytes) -> Any:
    """Parse a serialized literal."""
    return parsed("LiteralProto", data)


def payload_of(data: bytes) -> Any:
    """Parse a serialized payload: bytes, or the place of one in its module."""
    return parsed("Payload", data)


def metadata_of(data: bytes) -> Any:
    """Parse the serialized metadata of an instruction."""
    return parsed("OpMetadata", data)


def parsed(kind: str, data: bytes, why: str = DAMAGED) -> Any:
    """Parse a serialized message of a kind of `hlo_fields.proto`.

    Raises:
        UnreadableProto: it cannot be parsed; `why` is the message.
    """
    try:
        return _message(kind).FromString(data)
    except _decode_error() as error:
        raise UnreadableProto(why) from error


def with_fields(message: Any, names: Iterable[str]) -> bytes:
    """Return a message with some of its fields alone, serialized."""
    kept = type(message)()
    kept.CopyFrom(message)
    for name in {*message.DESCRIPTOR.fields_by_name} - {*names}:
        kept.ClearField(name)
    kept.DiscardUnknownFields()
    serialized: bytes = kept.SerializeToString()
    return serialized


def _decode_error() -> type[Exception]:
    """Return what parsers raise; imported only once they have."""
    from google.protobuf.message import DecodeError

    error_type: type[Exception] = DecodeError
    return error_type
