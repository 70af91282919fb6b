"""The wire format of protobuf, as far as it takes no package: which message some bytes hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODULE, _ASSIGNMENT = 1, 3
"""Fields of HloProto."""
_MODULE_BEGINS = (b"\x0a", b"\x12", b"\x1a")
"""Keys of the first fields of a module, and of an HloProto's; a value begins with a number."""
NO_ASSIGNMENT = "it is a serialised HLO module without buffer assignment"
_RIEGELI = bytes.fromhex("83af70d10d884a3f")
"""How a file of Riegeli's begins: the hash of its first block header."""
_BLOCK_BYTES, _BLOCK_HEADER_BYTES = 1 << 16, 24
_HIGHEST = 30
"""No message of these has fields beyond, and none is a number."""


def hlo_proto(module: bytes, assignment: bytes) -> bytes:
    """A serialised HloProto of a serialised HloModuleProto and BufferAssignmentProto.

    So a live function has both: `runtime_executable().hlo_modules()[0]` the one, its
    `memory_analysis()` the other. They belong together if the values of the one name instructions
    of the other, which is seen when they are read.
    """
    return _field(_MODULE, module) + _field(_ASSIGNMENT, assignment)


def fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, start, stop) of the fields of a message; ends where it makes no sense.

    A field that goes beyond the end is given with the stop that it claims.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if at < 0 or number == 0:
            return
        start = at
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            size, start = _varint(data, at)
            at = start + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return
        if start < 0 or at < 0:
            return
        yield number, kind, start, at


def why_no_assignment(data: bytes) -> str | None:
    """What some bytes are instead of an HloProto, or a snapshot of one, with a buffer assignment.

    None if they have one, as far as their first levels say: nothing below is looked at.
    """
    if not data:
        return "it is empty"
    found = _parts(data)
    if found is None:
        return "it is no serialised HLO module"
    if found.stop != len(data):
        return "it was cut off, or is no serialised HLO module"
    if found.is_repeated or data[found.module[0] : found.module[0] + 1] not in _MODULE_BEGINS:
        return (
            "it is a buffer assignment without its module (bufdb.proto.wire.hlo_proto joins them), "
            "or no serialised HLO module"
        )
    if found.assignment:
        return None
    if _is_snapshot(data, found.module):
        return why_no_assignment(data[found.module[0] : found.module[1]])
    return NO_ASSIGNMENT


def snapshot_part(data: bytes) -> bytes | None:
    """The HloProto inside a serialised HloSnapshot; None if the bytes are no snapshot."""
    found = _parts(data)
    if found is None or not _is_snapshot(data, found.module):
        return None
    return data[found.module[0] : found.module[1]]


def found_within(data: bytes, module: bytes) -> bytes | None:
    """An HloProto of a module with its buffer assignment, whole within bytes of another format.

    A TPU's serialised executable has one, in a record of Riegeli's. None if there is none, as far
    as first levels say.

    Args:
        data: the bytes to look through.
        module: the module, serialised: with its name it begins in `data` too.
    """
    data = _without_block_headers(data)
    head = next(fields(module), None)
    if head is None or head[:2] != (_MODULE, _BYTES):
        return None
    at = -1
    while (at := data.find(module[: head[3]], at + 1)) >= 0:
        for width in range(1, min(at, 6)):
            size, behind = _varint(data, at - width)
            begin, stop = at - width - 1, at + size
            if behind == at and data[begin] == _MODULE << 3 | _BYTES and stop <= len(data):
                end = _assignment_end(data, stop)
                if end is not None and _is_whole(data[at:stop]):
                    return data[begin:end]
    return None


def _without_block_headers(data: bytes) -> bytes:
    """Bytes with records of Riegeli's joined: a header parts them at each multiple of its block.

    https://github.com/google/riegeli: doc/riegeli_records_file_format.md
    """
    start = data.find(_RIEGELI)
    if start < 0:
        return data
    blocks = range(start, len(data), _BLOCK_BYTES)
    return b"".join([data[at + _BLOCK_HEADER_BYTES : at + _BLOCK_BYTES] for at in blocks])


def _assignment_end(data: bytes, at: int) -> int | None:
    """Where the buffer assignment ends that is the next field, or the one behind the next."""
    for number, kind, start, stop in itertools.islice(fields(data[at:]), 2):
        if kind != _BYTES or at + stop > len(data):
            return None
        if number == _ASSIGNMENT:
            is_one = stop > start and _is_whole(data[at + start : at + stop])
            return at + stop if is_one else None
    return None


def _is_whole(data: bytes) -> bool:
    """Whether fields fill all of a message."""
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
    """Where the last field ends that makes sense, or says that it does."""


def _parts(data: bytes) -> _Parts | None:
    """The first level; None if it cannot be one of the two."""
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
    """Whether what the first field holds begins with a module, and not with a module's name."""
    inside = data[first[0] : min(first[1], first[0] + 64)]
    for number, kind, start, stop in fields(inside):
        # A module begins with its name, a HloProto with a module, whose first field is a name.
        name = inside[start : min(stop, start + 1)]
        return number == _MODULE and kind == _BYTES and name == bytes([_MODULE << 3 | _BYTES])
    return False


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _as_varint(len(data)) + data


def _as_varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 if it does not."""
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
