"""Bytes of a file as an HloProto, plain, compressed or in a snapshot (format section 10).

The package protobuf comes with the extra `bufdb[proto]`; nothing here imports it before a proto is
read.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import operator
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from bufdb.proto import wire

GZIP = b"\x1f\x8b"
MAX_BYTES = 1 << 31
"""A message has at most 2 GiB."""
MOST_BYTES = 384 << 20
FREE_BYTES = 64 << 20
MOST_RATIO = 100
"""A compressed file is unpacked to so many bytes at most, and beyond `FREE_BYTES` to so many times
its size: XLA's are compressed 5 to 15 times, and what comes out is held in memory."""
PACKAGE_MISSING = (
    "reading it takes the package protobuf, which is not installed: pip install 'bufdb[proto]'"
)
DAMAGED = "it is damaged: a part of it cannot be parsed"
NO_PROTO = "it is no HloProto; it may have been cut off or be another message"
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
    """An id in a proto that leads to nothing is damage.

    Raises:
        UnreadableProto: there is one.
    """
    try:
        yield
    except KeyError as error:
        raise UnreadableProto(f"it is damaged: {error} is in it nowhere") from error


@cache
def is_readable() -> bool:
    """Whether the package protobuf is installed."""
    try:
        return importlib.util.find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        return False


def unpacked(data: bytes) -> bytes:
    """The bytes of a file, decompressed if they are compressed.

    Raises:
        UnreadableProto: the compressed bytes are damaged, or hold more than is unpacked.
    """
    if not data.startswith(GZIP):
        return data
    most = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * len(data)))
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
                f"{MOST_BYTES >> 20} MiB; unpack it first if it can be trusted"
            )
        if not stream.eof:
            raise UnreadableProto("it was cut off: the compressed data have no end")
        data = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read(data: bytes, kind: str = "HloProto") -> Any:
    """The HloProto in the bytes of a `.hlo.pb`, a `.hlo.pb.gz` or a snapshot.

    Args:
        data: the bytes.
        kind: name of the message; HloProtoParts is the same in parts.

    Raises:
        UnreadableProto: the package is missing, or the bytes are no such message.
    """
    if not is_readable():
        raise UnreadableProto(PACKAGE_MISSING)
    data = unpacked(data)
    inside = wire.snapshot_part(data)
    return parsed(kind, data if inside is None else inside, NO_PROTO)


def computations_of(every: Iterable[bytes]) -> Iterator[Any]:
    """Serialised computations, their instructions in parts."""
    try:
        # One at a time: each holds all the bytes that it was read from.
        yield from map(_message("HloComputationParts").FromString, every)
    except _decode_error() as error:
        raise UnreadableProto(DAMAGED) from error


def instructions_of(computation: bytes) -> Any:
    """The instructions of a serialised computation."""
    return parsed("HloComputationProto", computation).instructions


def names_of(data: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Computations of an HloProto, and the instructions in each, by their names.

    Raises:
        UnreadableProto: the bytes are no such message.
    """
    computations = read(data).hlo_module.computations
    heads = zip(computations_of(computations), computations, strict=True)
    return [(head.name, [x.name for x in instructions_of(one)]) for head, one in heads]


@cache
def _message(kind: str) -> Any:
    """A generated class; their module makes all of them when it is imported."""
    return operator.attrgetter(kind)(importlib.import_module("bufdb.proto.hlo_fields_pb2"))


def fields_of(kind: str) -> Mapping[str, Any]:
    """What descriptors say of the fields of a message, by their names."""
    found: Mapping[str, Any] = _message(kind).DESCRIPTOR.fields_by_name
    return found


def shape_of(data: bytes) -> Any:
    """A serialised shape."""
    return parsed("ShapeProto", data)


def instruction_of(data: bytes) -> Any:
    """A serialised instruction."""
    return parsed("HloInstructionProto", data)


def literal_of(data: bytes) -> Any:
    """A serialised literal."""
    return parsed("LiteralProto", data)


def payload_of(data: bytes) -> Any:
    """A serialised payload: bytes, or the place of one in its module."""
    return parsed("Payload", data)


def metadata_of(data: bytes) -> Any:
    """The serialised metadata of an instruction."""
    return parsed("OpMetadata", data)


def parsed(kind: str, data: bytes, why: str = DAMAGED) -> Any:
    """A serialised message of a kind of `hlo_fields.proto`.

    Raises:
        UnreadableProto: it is none, which `why` says.
    """
    try:
        return _message(kind).FromString(data)
    except _decode_error() as error:
        raise UnreadableProto(why) from error


def with_fields(message: Any, names: Iterable[str]) -> bytes:
    """A message with some of its fields alone, serialised."""
    kept = type(message)()
    kept.CopyFrom(message)
    for name in {*message.DESCRIPTOR.fields_by_name} - {*names}:
        kept.ClearField(name)
    kept.DiscardUnknownFields()
    found: bytes = kept.SerializeToString()
    return found


def _decode_error() -> type[Exception]:
    """What parsers raise; asked for when they have."""
    from google.protobuf.message import DecodeError

    found: type[Exception] = DecodeError
    return found
