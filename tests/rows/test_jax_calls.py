"""Lines of what is in jnp's own functions, by the JAX that is installed."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from bufdb.database import store
from bufdb.ingest.ingest import ingest

PROGRAM = """
import jax, jax.numpy as jnp

def step(x):
    a = jnp.cumsum(x, axis=1)  # 5
    b = jnp.sort(a * 2, axis=1)  # 6
    c = jnp.cumprod(b, axis=0)  # 7
    return (c @ x.T).sum() + jnp.median(b)  # 8

jax.jit(step).lower(jax.ShapeDtypeStruct((256, 512), "float32")).compile()
"""
LINES = """
SELECT value_sources.source_line, sum(held_bytes)
FROM peak_values
JOIN value_sources USING (module_id, value_id)
WHERE allocation_kind = 'temp'
GROUP BY ALL
"""
OPS = """
SELECT DISTINCT source_line, op_name
FROM instructions
WHERE instruction_name LIKE 'wrapped_reduce-window%'
"""


def test_jitted_functions_of_jnp_have_the_line_of_their_call(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    flags = f"--xla_dump_to={tmp_path / 'dumps'} --xla_dump_hlo_as_text"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    subprocess.run([sys.executable, program], env=environment, check=True)
    db = str(tmp_path / "a.duckdb")
    ingest(db, [tmp_path / "dumps"])
    with closing(store.open_readable(db)) as con:
        lines = dict(con.execute(LINES).fetchall())
        ops = dict(con.execute(OPS).fetchall())
    assert None not in lines, lines
    assert {line.rpartition(":")[2] for line in lines} <= {"5", "6", "7", "8"}
    assert {line: op.rpartition("/")[0] for line, op in ops.items()} == {
        5: "jit(step)/jit(cumsum)",
        7: "jit(step)/jit(cumprod)",
        8: "jit(step)/jit(median)/jit(quantile)",
    }
