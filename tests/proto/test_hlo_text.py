"""Text printed from a proto that no other test would find missing."""

import pytest
from proto_rows import needs_protobuf

from bufdb.proto.graph import Module
from bufdb.proto.hlo_text import Printer

pytestmark = needs_protobuf
F32 = 11


def computation(module, number, name, *instructions, is_fusion=False):
    """Add a computation of instructions (name, opcode, fields) whose last one is its root."""
    from bufdb.proto import hlo_fields_pb2 as made

    body = made.HloComputationProto()
    for place, (title, opcode, fields) in enumerate(instructions):
        body.instructions.add(
            id=number * 100 + place,
            name=title.encode(),
            opcode=opcode.encode(),
            shape=made.ShapeProto(element_type=F32).SerializeToString(),
            **fields,
        )
    head = made.HloComputationParts(
        id=number,
        name=name.encode(),
        root_id=number * 100 + len(instructions) - 1,
        is_fusion_computation=is_fusion,
    )
    module.computations.append(head.SerializeToString() + body.SerializeToString())


def printed(payloads, config):
    """Print the outer body of a fusion in a fusion."""
    from bufdb.proto import hlo_fields_pb2 as made

    proto = made.HloProto()
    module = proto.hlo_module
    module.entry_computation_id = 3
    module.payloads.extend(payloads)
    fusion = {"fusion_kind": b"kLoop"}
    computation(module, 1, "inner", ("x", "cosine", {}), is_fusion=True)
    call = {**fusion, "called_computation_ids": [1]}
    computation(module, 2, "outer", ("y", "fusion", call), is_fusion=True)
    call = {**fusion, "called_computation_ids": [2], **config(made)}
    computation(module, 3, "main", ("z", "fusion", call))
    return "\n".join(Printer(Module(proto)).hlo([2]))


def test_a_printed_body_has_the_bodies_within_it():
    text = printed([], lambda made: {})
    assert "%inner () -> () {\n  ROOT %x = f32[] cosine()\n}" in text
    assert text.index("%outer ()") < text.index("%inner ()") < text.index("ENTRY %main ()")


@pytest.mark.parametrize(
    ("payload", "suffix"),
    [
        ({"id": 1}, ', backend_config={"b":2}'),
        ({"id": 0}, ', backend_config={"a":1}'),
        ({"value": b'{"c":3}'}, ', backend_config={"c":3}'),
        ({"id": 2}, ""),
        ({"id": -1}, ""),
        ({}, ""),
    ],
)
def test_a_configuration_may_be_a_payload_of_the_module(payload, suffix):
    def config(made):
        return {"backend_config_payload": made.Payload(**payload).SerializeToString() or b"\x1a\0"}

    text = printed([b'{"a":1}', b'{"b":2}'], config)
    assert text.splitlines()[-2] == f"  ROOT %z = f32[] fusion(), kind=kLoop, calls=%outer{suffix}"
