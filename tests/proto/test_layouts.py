"""Layouts of a proto are printed as XLA prints them."""

import pytest
from proto_rows import needs_protobuf

from bufdb.proto import reader
from bufdb.proto.shapes import text_of
from bufdb.read.shape import shape_of

pytestmark = needs_protobuf
LAYOUTS = (
    "{1,0}",
    "{0,1:T(8,128)(2,1)S(1)}",
    "{1,0:T(8,128)SC(0:4)}",
    "{1,0:T(1,128)L(128)S(4)SC(1:64,128)(0:4)}",
    "{1,0:E(4)SC(0:2)}",
    "{1,0:#(u32)*(u8)E(4)S(5)}",
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_that_of_xlas_text(layout: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    from bufdb.proto.hlo_fields_pb2 import HloModuleProto

    text = f"HloModule m\n\nENTRY e {{\n  ROOT p = s4[8,512]{layout} parameter(0)\n}}\n"
    made = hlo.hlo_module_from_text(text)
    assert f"p = s4[8,512]{layout} parameter" in made.to_string()
    proto = HloModuleProto.FromString(made.as_serialized_hlo_module_proto())
    (root,) = reader.instructions_of(proto.computations[0])
    assert text_of(reader.shape_of(root.shape)) == f"s4[8,512]{layout}"


def test_the_rest_of_a_layout_follows_xlas_source() -> None:
    from bufdb.proto.hlo_fields_pb2 import LayoutProto, ShapeProto

    inner = ShapeProto(element_type=6, dimensions=[64], layout=LayoutProto(minor_to_major=[0]))
    layout = LayoutProto(
        minor_to_major=[0],
        memory_space=1,
        index_primitive_type=11,
        physical_shape=inner,
        dynamic_shape_metadata_prefix_bytes=16,
    )
    layout.split_configs.add(dimension=0, split_indices=[4, 8])
    text = text_of(ShapeProto(element_type=11, dimensions=[16], layout=layout))
    assert text == "f32[16]{0:#(invalid)S(1)SC(0:4,8)P(u8[64]{0})M(16)}"
    assert (shape_of(text).memory_space, shape_of(text).logical_bytes) == (1, 64)
