"""The wire format of protobuf, as far as it takes no package: which message some bytes hold."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODULE, _ASSIGNMENT = 1, 3
"""Fields of HloProto."""


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


def has_assignment(data: bytes) -> bool | None:
    """Whether a serialised HloProto or HloSnapshot has a buffer assignment; None if it is neither.

    Nothing below the first levels is looked at.
    """
    found = _parts(data)
    if found is None:
        return None
    module, assignment = found
    if assignment is not None:
        return assignment > 0
    return has_assignment(data[module[0] : module[1]]) if _is_snapshot(data, module) else False


def snapshot_part(data: bytes) -> bytes | None:
    """The HloProto inside a serialised HloSnapshot; None if the bytes are no snapshot."""
    found = _parts(data)
    if found is None or not _is_snapshot(data, found[0]):
        return None
    return data[found[0][0] : found[0][1]]


def _parts(data: bytes) -> tuple[tuple[int, int], int | None] | None:
    """Span of the first field, and the size of a third one; None if there is no first one."""
    module, assignment = None, None
    for number, kind, start, stop in fields(data):
        if kind != _BYTES or number > 30:
            return None
        if number == _MODULE and module is None:
            module = start, stop
        elif number == _ASSIGNMENT:
            assignment = stop - start
    return None if module is None else (module, assignment)


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
