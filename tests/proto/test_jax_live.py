"""A compiled function returns what XLA dumps: with real JAX, on CPU."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from places import ROOT
from proto_rows import differences, needs_protobuf, put

from bufdb.proto.reader import fields

pytestmark = needs_protobuf
pytest.importorskip("jax", reason="this Python has no jax")

PROGRAM = """
import pathlib, sys
import jax, jax.numpy as jnp
from bufdb.proto.reader import hlo_proto

def step(w, x):
    def body(carry, _):
        carry = jnp.tanh(carry @ w)
        return carry, carry.sum()
    return jax.value_and_grad(lambda x: jax.lax.scan(body, x, None, length=5)[1].sum())(x)

def branch(w, x):
    return jax.lax.cond(x[0, 0] > 0, lambda: jnp.sort(x @ w), lambda: jnp.cumsum(x @ w, 0))

for function in (step, branch):
    shapes = jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((8, 64), jnp.float32)
    compiled = jax.jit(function).lower(*shapes).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    data = hlo_proto(
        module.as_serialized_hlo_module_proto(),
        compiled.memory_analysis().serialized_buffer_assignment_proto,
    )
    (dumped,) = pathlib.Path("dumps").glob(f"*jit_{function.__name__}*-live-range.txt")
    name = dumped.name.replace("-live-range.txt", ".hlo.pb")
    pathlib.Path("live", name).write_bytes(data)
"""
_MODULE, _ASSIGNMENT, _TRACES = 1, 3, 4
"""Fields of an HloProto and of its buffer assignment."""


def first_level(data: bytes) -> dict[int, list[bytes]]:
    """Return the contents of a message's fields by number."""
    payloads: dict[int, list[bytes]] = {}
    for number, _, start, stop in fields(data):
        payloads.setdefault(number, []).append(data[start:stop])
    return payloads


def test_a_live_function_gives_the_rows_of_its_dump(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "live").mkdir()
    dump = "--xla_dump_to=dumps --xla_dump_hlo_as_text --xla_dump_hlo_as_proto"
    environment = {
        **os.environ,
        "XLA_FLAGS": dump,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, check=True)
    files = [f for f in (tmp_path / "dumps").iterdir() if "after_optimizations" in f.name]
    files = [f for f in files if "jit_step" in f.name or "jit_branch" in f.name]
    for live in (tmp_path / "live").iterdir():
        live_fields, dumped = (
            first_level((tmp_path / way / live.name).read_bytes()) for way in ("live", "dumps")
        )
        assert live_fields[_MODULE] == dumped[_MODULE]
        kept = first_level(dumped[_ASSIGNMENT][0])
        del kept[_TRACES]  # as test_ways_in.py takes it for the others
        assert first_level(live_fields[_ASSIGNMENT][0]) == kept
    for name, suffix in (("text", ".txt"), ("proto", ".hlo.pb")):
        ingest_into(con, put(tmp_path / name, [f for f in files if f.name.endswith(suffix)]), name)
    ingest_into(con, tmp_path / "live", "live")
    assert rows(con, "SELECT count(*) FROM modules") == [(6,)]
    assert differences(con, "text", "proto") == differences(con, "text", "live") == []
