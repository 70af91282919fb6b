"""Instructions and tables of a proto as lines of an HLO text, read back by the text's reader."""

from typing import Any

import duckdb
import pytest
from ingesting import ingest_into, rows
from proto_rows import PROTOS, needs_protobuf

from bufdb.proto import times
from bufdb.proto.reader import UnreadableProto
from bufdb.proto.sections import texts
from bufdb.read import hlo

pytestmark = needs_protobuf


@pytest.fixture
def proto() -> Any:
    """A module of one instruction, without a buffer assignment."""
    from bufdb.proto import hlo_fields_pb2 as pb

    message = pb.HloProto()
    module = message.hlo_module
    module.name, module.entry_computation_id = b"jit_f", 1
    head = pb.HloComputationHead(name=b"main.1", id=1, root_id=7)
    body = pb.HloComputationProto()
    shape = pb.ShapeProto(element_type=11, dimensions=[4])
    shape.layout.minor_to_major.append(0)
    made = body.instructions.add(name=b"x.1", opcode=b"parameter", id=7)
    made.shape = shape.SerializeToString()
    made.metadata = pb.OpMetadata(op_name=b"a['\xc3\xa9\n']").SerializeToString()
    module.computations.append(head.SerializeToString() + body.SerializeToString())
    return message


def hlo_text(proto: Any) -> bytes:
    return texts(proto.SerializeToString(), frozenset({"hlo"})).texts["hlo"]


def test_quoted_text_is_escaped_as_c_does(proto: Any) -> None:
    line = rb"""  ROOT %x.1 = f32[4]{0} parameter(0), metadata={op_name="a[\'\303\251\n\']"}"""
    assert line in hlo_text(proto).split(b"\n")


def test_frames_of_old_protos_have_no_end(proto: Any) -> None:
    index = proto.hlo_module.stack_frame_index
    index.file_names.append(b"/home/user/train.py")
    index.function_names.append(b"step")
    index.file_locations.add(file_name_id=1, function_name_id=1, line=3, column=4)
    index.file_locations.add(
        file_name_id=1, function_name_id=1, line=5, column=1, end_line=6, end_column=2
    )
    index.stack_frames.add(file_location_id=1)
    index.stack_frames.add(file_location_id=2, parent_frame_id=1)
    found = hlo.read(hlo_text(proto).split(b"ENTRY")[0])
    assert found.problems == []
    assert [(f.source_line, f.source_end_line, f.source_end_column) for f in found.frames] == [
        (3, None, None),
        (5, 6, 2),
    ]
    assert [f.parent_frame_id for f in found.frames] == [None, 1]


@pytest.mark.parametrize("name", [b"x\n%y", b"x y", b"", b"\xff"])
def test_what_is_no_name_is_refused(proto: Any, name: bytes) -> None:
    from bufdb.proto import hlo_fields_pb2 as pb

    body = pb.HloComputationProto()
    body.instructions.add(name=name, opcode=b"parameter", id=8)
    proto.hlo_module.computations[0] += body.SerializeToString()
    with pytest.raises(UnreadableProto, match="is no name"):
        hlo_text(proto)


def test_a_proto_that_shows_no_version_is_told(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_into(con, PROTOS / "gpu_sharded")
    assert rows(con, "SELECT code FROM diagnostics") == []
    monkeypatch.setattr(times, "_SHOWING", frozenset())
    ingest_into(con, PROTOS / "gpu_sharded", "again")
    assert rows(con, "SELECT severity, code FROM diagnostics") == [("info", "asynchronous_starts")]
