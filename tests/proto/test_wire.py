"""Bytes of protos are recognized without the protobuf package."""

import gzip

import pytest
from proto_rows import PROTOS

from bufdb.proto import reader
from bufdb.proto.reader import fields, hlo_proto, snapshot_part, why_no_assignment

WHOLE = (
    PROTOS / "tpu/module_0060.jit_decode.cl_1003875606.after_optimizations.hlo.pb"
).read_bytes()
PARTS = {number: WHOLE[start:stop] for number, _, start, stop in fields(WHOLE)}
MODULE, ASSIGNMENT = PARTS[1], PARTS[3]


def test_a_module_and_its_assignment_are_joined() -> None:
    assert hlo_proto(MODULE, ASSIGNMENT) == WHOLE
    assert why_no_assignment(WHOLE) is None


def snapshot(proto: bytes) -> bytes:
    """An HloSnapshot: the proto in its first field, an argument, the platform's name."""
    return hlo_proto(proto, b"")[:-2] + b"\x12\x02\x10\x05" + b"\x22\x03TPU"


def test_a_snapshot_holds_a_proto() -> None:
    assert snapshot_part(snapshot(WHOLE)) == WHOLE
    assert snapshot_part(WHOLE) is None
    assert why_no_assignment(snapshot(WHOLE)) is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (hlo_proto(MODULE, b""), "without buffer assignment"),
        (snapshot(hlo_proto(MODULE, b"")[:-2]), "without buffer assignment"),
        # Of a program that ran, with its result.
        (snapshot(hlo_proto(MODULE, b"")[:-2]) + b"\x1a\x02\x10\x05", "without buffer assignment"),
        (ASSIGNMENT, "without its module"),
        (WHOLE[:100], "cut off"),
        (WHOLE[:-1], "cut off"),
        (b"\x89PNG\r\n\x1a\n" * 20, "not a serialized HLO module"),
        (b"BufferAssignment:\nallocation 0: size 4", "not a serialized HLO module"),
        (b"\xff" * 40, "not a serialized HLO module"),
    ],
)
def test_other_bytes_are_no_proto(data: bytes, what: str) -> None:
    reason = why_no_assignment(data)
    assert reason is not None
    assert what in reason


def test_compressed_bytes_are_unpacked_as_far_as_is_allowed() -> None:
    packed = gzip.compress(WHOLE)
    assert reader.unpacked(packed) == reader.unpacked(WHOLE) == WHOLE
    assert reader.unpacked(gzip.compress(WHOLE[:50]) + gzip.compress(WHOLE[50:])) == WHOLE
    with pytest.raises(reader.UnreadableProto, match="cut off"):
        reader.unpacked(packed[:-9])
    with pytest.raises(reader.UnreadableProto, match="does not decompress"):
        reader.unpacked(packed[:100] + b"\0" * 100 + packed[200:])
    with pytest.raises(reader.UnreadableProto, match="unpack it first"):
        reader.unpacked(packed, 1000)
