"""The wire format of protobuf, as far as it takes no package: which message some bytes hold."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODULE, _ASSIGNMENT = 1, 3
"""Fields of HloProto."""
_MODULE_BEGINS = (b"\x0a", b"\x12", b"\x1a")
"""Keys of the first fields of a module, and of an HloProto's; a value begins with a number."""
NO_ASSIGNMENT = "it is a serialised HLO module without buffer assignment"
_GPU_MODULE, _GPU_ASSIGNMENT = 1, 2
"""Fields of XLA's GpuExecutableProto: the module with its configuration, of which it is the first
field, and the buffer assignment."""
_NAME = re.compile(rb"\x0a([\x01-\x7f])([A-Za-z_][A-Za-z0-9_.\-]*)\x12")
"""How a module begins: its name, then the entry's."""
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
    if _is_snapshot(data, found.module):  # its third field is what the program gave
        return why_no_assignment(data[found.module[0] : found.module[1]])
    return None if found.assignment else NO_ASSIGNMENT


def snapshot_part(data: bytes) -> bytes | None:
    """The HloProto inside a serialised HloSnapshot; None if the bytes are no snapshot."""
    found = _parts(data)
    if found is None or not _is_snapshot(data, found.module):
        return None
    return data[found.module[0] : found.module[1]]


def found_within(data: bytes, module: bytes) -> bytes | None:
    """An HloProto of a module with its buffer assignment, whole within a record of something else.

    A serialised executable has them: that of a TPU an HloProto somewhere in a record, that of a GPU
    in a record with two fields for them. None if there is none, as far as first levels say.

    Args:
        data: the record.
        module: the module, serialised: with its name it begins in `data` too.
    """
    head = next(fields(module), None)
    if head is None or head[:2] != (_MODULE, _BYTES):
        return None
    return _in_gpu_executable(data, module[: head[3]]) or _anywhere(data, module[: head[3]])


def named_within(data: bytes) -> tuple[str, bytes] | None:
    """The name of a module and its HloProto, as `found_within` finds it; None without one."""
    for found in _NAME.finditer(data):
        if len(found[2]) == found[1][0]:
            head = data[found.start() : found.end() - 1]
            proto = _anywhere(data, head)
            if proto is not None:
                return found[2].decode(), proto
    return None


def _in_gpu_executable(data: bytes, head: bytes) -> bytes | None:
    found = {n: data[start:stop] for n, kind, start, stop in fields(data) if kind == _BYTES}
    outer, assignment = found.get(_GPU_MODULE, b""), found.get(_GPU_ASSIGNMENT, b"")
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
            size, behind = varint(data, at - width)
            begin, stop = at - width - 1, at + size
            if behind == at and data[begin] == _MODULE << 3 | _BYTES and stop <= len(data):
                end = _assignment_end(data, stop)
                if end is not None and _is_whole(data[at:stop]):
                    return data[begin:end]
    return None


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
    return bytes([number << 3 | _BYTES]) + _asvarint(len(data)) + data


def _asvarint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def varint(data: bytes, at: int) -> tuple[int, int]:
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
