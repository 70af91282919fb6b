"""Fields read as columns are those that the package protobuf reads, message by message."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from proto_rows import PROTOS, needs_protobuf

from bufdb.proto import messages, places, reader
from bufdb.proto.messages import Messages
from bufdb.proto.reader import UnreadableProto

pytestmark = needs_protobuf
SAMPLES = sorted(PROTOS.glob("*/*.hlo.pb"))
NUMBERS = ("id", "channel_id", "parameter_number")
TEXTS = ("name", "shape", "backend_config")
LISTS = ("operand_ids", "called_computation_ids", "dimensions")


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, kind: int, content: bytes) -> bytes:
    size = varint(len(content)) if kind == 2 else b""
    return varint(number << 3 | kind) + size + content


def read_columns(serialized: Sequence[bytes]) -> dict[str, Any]:
    """Return the columns read from serialized instructions."""
    some = Messages("HloInstructionProto", serialized)
    parts = [reader.instruction_of(data) for data in some.parts(messages._ATTRIBUTES)]
    return {
        **{name: some.numbers(name).tolist() for name in NUMBERS},
        **{name: some.texts(name) for name in TEXTS},
        **{name: messages.parted(*some.all_numbers(name)) for name in LISTS},
        "literal": [reader.literal_of(data) for data in some.joined("literal")],
        "parts": [(list(x.dimensions), x.sharding) for x in parts],
    }


def parsed(messages: Sequence[bytes]) -> dict[str, Any]:
    """The same out of the package's messages."""
    every = [reader.instruction_of(data) for data in messages]
    for x in every:
        x.literal.DiscardUnknownFields()
        x.sharding.DiscardUnknownFields()
    return {
        **{name: [getattr(x, name) for x in every] for name in (*NUMBERS, *TEXTS, "literal")},
        **{name: [getattr(x, name)[:] or () for x in every] for name in LISTS},
        "parts": [(list(x.dimensions), x.sharding) for x in every],
    }


def agree(messages: Sequence[bytes]) -> bool:
    """Return whether both readers succeed with the same result, or both fail."""
    try:
        expected = parsed(messages)
    except UnreadableProto:
        with pytest.raises(UnreadableProto):
            read_columns(messages)
        return False
    columns = read_columns(messages)
    for some in (columns["literal"], [sharding for _, sharding in columns["parts"]]):
        for message in some:
            message.DiscardUnknownFields()
    assert columns == expected
    return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "FEW", 1)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name + path.name[:12])
def test_samples_are_read_the_same_in_both_ways(path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = reader.read(path.read_bytes(), "HloProtoParts")
    members: list[bytes] = []
    for computation in reader.computations_of(proto.hlo_module.computations):
        members += computation.instructions
    at_once = repr(places.read_assignment(proto.buffer_assignment))
    monkeypatch.setattr(messages, "FEW", 1 << 20)
    assert repr(places.read_assignment(proto.buffer_assignment)) == at_once
    monkeypatch.setattr(messages, "FEW", 1)
    assert agree(members)


@pytest.mark.parametrize(
    "message",
    {
        "no field": b"",
        "a list that is not packed": field(36, 0, b"\x05") + field(36, 0, b"\x07"),
        "a list in two parts": field(36, 2, b"\x05\x06") + field(36, 2, b"\x07"),
        "a list of both kinds": field(36, 2, b"\x05\x06") + field(36, 0, b"\x07"),
        "a list of large numbers": field(36, 2, varint(2**56 - 1) + varint(2**56) + varint(3)),
        "a list that is empty": field(36, 2, b""),
        "a number twice": field(35, 0, b"\x05") + field(35, 0, b"\x07"),
        "a number below 0": field(35, 0, varint(2**64 - 1)),
        "a number of eight bytes": field(35, 0, varint(2**56 - 1)),
        "a number of more bytes than it needs": field(35, 0, b"\x85\x80\x00"),
        "a number as bytes": field(35, 2, b"\x05"),
        "bytes as a number": field(1, 0, b"\x05"),
        "a text twice": field(1, 2, b"a") + field(1, 2, b"b"),
        "a message twice": field(8, 2, b"\x0a\x00") + field(8, 2, field(4, 2, b"\x01")),
        "a field of 4 bytes": field(70, 5, b"abcd") + field(35, 0, b"\x05"),
        "a field of 8 bytes": field(70, 1, b"abcdefgh") + field(35, 0, b"\x05"),
        "a key of two bytes": field(2000, 2, b"abc") + field(35, 0, b"\x05"),
        "a key of three bytes": field(20000, 2, b"abc") + field(35, 0, b"\x05"),
        "a group": varint(70 << 3 | 3) + field(35, 0, b"\x06") + varint(70 << 3 | 4),
        "many fields": field(14, 0, b"\x05") * 3000,
    }.items(),
    ids=lambda item: item[0],
)
def test_what_is_odd_is_read_as_the_package_reads_it(message: tuple[str, bytes]) -> None:
    plain = field(1, 2, b"add.1") + field(35, 0, b"\x09") + field(36, 2, b"\x03\x04")
    assert agree([plain, message[1], plain, message[1] + plain])


@pytest.mark.parametrize(
    "message",
    {
        "a number that does not end": field(35, 0, b"\x85"),
        "a number of eleven bytes": field(35, 0, b"\x80" * 10 + b"\x01"),
        "a length beyond the end": varint(1 << 3 | 2) + b"\x05abc",
        "a length beyond all memory": varint(1 << 3 | 2) + varint(2**55) + b"abc",
        "a list that does not end": field(36, 2, b"\x05\x86"),
        "a key of field 0": b"\x02\x01a",
        "a key of no type": b"\x0f\x01",
        "the end of a group": varint(70 << 3 | 4),
        "a group without end": varint(70 << 3 | 3) + field(35, 0, b"\x06"),
        "a key alone": b"\x0a",
        "a part of a key": b"\x8a",
        "8 bytes that are 7": field(70, 1, b"abcdefg"),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_makes_no_sense_is_refused(message: tuple[str, bytes]) -> None:
    plain = field(1, 2, b"add.1") + field(35, 0, b"\x09") + field(36, 2, b"\x03\x04")
    assert not agree([plain, message[1], plain])
    assert not agree([plain, plain + message[1]])


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(8))
def test_damaged_instructions_are_read_or_refused_alike(chunk: int) -> None:
    proto = reader.read(SAMPLES[0].read_bytes(), "HloProtoParts")
    members: list[bytes] = []
    for computation in reader.computations_of(proto.hlo_module.computations):
        members += computation.instructions
    chance = random.Random(chunk)
    were_read = 0
    for _ in range(150):
        some = chance.sample(members, 6)
        damaged = bytearray(some[3])
        for _ in range(chance.choice((1, 1, 3))):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        were_read += agree([*some[:3], bytes(damaged), *some[4:]])
    assert 15 < were_read < 150


def test_columns_are_the_same_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = reader.read(SAMPLES[0].read_bytes(), "HloProtoParts")
    whole = places.read_assignment(proto.buffer_assignment)
    monkeypatch.setattr(messages, "CHUNK", 7)
    assert repr(places.read_assignment(proto.buffer_assignment)) == repr(whole)
