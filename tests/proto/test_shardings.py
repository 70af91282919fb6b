"""Shardings of protos are printed as XLA prints them (format section 7.5)."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from proto_rows import needs_protobuf

from bufdb.proto import reader
from bufdb.proto.attributes import _sharding

pytestmark = needs_protobuf
MESH = {"axes": [{"name": b"x", "size": 4}, {"name": b"it's", "size": 2}]}
X, Y = {"mesh_axis_index": 0}, {"mesh_axis_index": 1}
HALF = {"mesh_axis_index": 0, "sub_axis_info": {"pre_size": 2, "size": 2}}
CLOSED: dict[str, Any] = {"is_closed": True}
AXES = r"{mesh['x'=4,'it\'s'=2]"


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"mesh": {}}, "{mesh[], replicated}"),
        ({"mesh": MESH}, AXES + ", replicated}"),
        ({"dim_shardings": [CLOSED, CLOSED]}, AXES + ", [{}, {}]}"),
        ({"dim_shardings": [{}, {"axes": [X]}]}, AXES + ", [{?}, {'x', ?}]}"),
        ({"dim_shardings": [{"axes": [Y, X], **CLOSED}]}, AXES + r", [{'it\'s', 'x'}]}"),
        ({"dim_shardings": [{"axes": [HALF], **CLOSED}]}, AXES + ", [{'x':(2)2}]}"),
        (
            {"dim_shardings": [{"axes": [X], **CLOSED}], "replicated_axes": [Y]},
            AXES + r", [{'x'}], replicated={'it\'s'}}",
        ),
        # Neither forms that no dump has shown nor nonsense are printed.
        ({"mesh": {**MESH, "device_ids": [1, 0]}}, None),
        ({"unreduced_axes": [b""]}, None),
        ({"manual_axes": [b""]}, None),
        ({"dim_shardings": [{"axes": [{"mesh_axis_index": 2}]}]}, None),
        ({"dim_shardings": [{"axes": [{"mesh_axis_index": -1}]}]}, None),
    ],
)
def test_forms_with_a_mesh(named: dict[str, Any], text: str | None) -> None:
    from bufdb.proto import hlo_fields_pb2

    sharding = hlo_fields_pb2.OpSharding(named_sharding={"mesh": MESH, **named})
    assert _sharding(sharding) == text


PROGRAM = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

def array(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

def step(a, b, c, d, e, f):
    h = jnp.tanh(a @ b)
    h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P(P.UNCONSTRAINED, "model")))
    return h, c.sum() + d.sum() + e.sum() + f

jax.jit(step).lower(
    array((32, 64), "data"), array((64, 128), None, "model"), array((128,), ("data", "model")),
    array((16, 8)), array((16, 8), ("model", "data"), None), array(()),
).compile()
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="this Python has no jax")
@pytest.mark.parametrize("has_mesh", [False, True])
def test_the_proto_says_what_the_text_says(tmp_path: Path, has_mesh: bool) -> None:
    flags = [
        f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_dump_hlo_as_proto",
        "--xla_force_host_platform_device_count=8",
        f"--xla_enable_hlo_sharding_v3={str(has_mesh).lower()}",
    ]
    environment = {
        **os.environ,
        "XLA_FLAGS": " ".join(flags),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True)
    if b"Unknown flag" in ran.stderr:
        pytest.skip("this XLA has no shardings with a mesh")
    assert ran.returncode == 0, ran.stderr
    texts = []
    for path in tmp_path.glob("*jit_step*_optimizations.hlo.pb"):
        text = path.with_name(path.name.replace(".hlo.pb", ".txt")).read_text()
        lines = {line[1]: line[0] for line in re.finditer(r"%?([\w.\-]+) = .*", text)}
        for computation in reader.read(path.read_bytes()).hlo_module.computations:
            for x in reader.instructions_of(computation):
                if x.HasField("sharding"):
                    printed = _sharding(x.sharding)
                    assert printed and f"sharding={printed}, " in lines[x.name.decode()]
                    texts.append(printed)
    assert len(texts) >= 12
    assert has_mesh == any("mesh['data'=2,'model'=4], [{'data'}" in text for text in texts)
