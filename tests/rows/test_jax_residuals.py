"""Residuals of a scanned layer: JAX's list compared with bufdb's of the compiled program.

`jax.ad_checkpoint.print_saved_residuals` names the line of each residual of a layer by itself; of
a scan over layers it knows the stacked arrays, and that they are outputs of the scan. bufdb must
find the same arrays and give them the lines of the layer.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from places import ROOT

from bufdb.ingest.ingest import ingest

MODEL = ROOT / "data" / "model"
COMPILE = """
import contextlib, io, json, sys
import jax, jax.numpy as jnp, loops
from jax.ad_checkpoint import print_saved_residuals

def residuals(function, *args):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print_saved_residuals(function, *args)
    return text.getvalue().splitlines()

policy = jax.checkpoint_policies.save_only_these_names("kept")
layer = {"layers": loops._layer, "layers_named": jax.checkpoint(loops._layer, policy=policy)}
zeros = lambda tree: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)
w, x = zeros(loops.LAYERS), zeros(loops.BATCH)
one = jax.tree.map(lambda leaf: leaf[0], w)
printed = {}
for name, function in layer.items():
    jax.jit(getattr(loops, name)).lower(loops.LAYERS, loops.BATCH).compile()
    printed[name] = [
        residuals(lambda x, w: function(x, w)[0], x, one),
        residuals(lambda w, x: loops._loss(function, w, x), w, x),
    ]
print(json.dumps(printed))
"""
TWICE = """
import jax

def layer(x, w):
    a = jax.nn.relu(x @ w)
    b = jax.nn.relu(a @ w)
    return b @ w, None

def step(w, x):
    return jax.grad(lambda w: jax.lax.scan(layer, x, w)[0].sum())(w)

shape = jax.ShapeDtypeStruct
jax.jit(step).lower(shape((6, 16, 16), "float32"), shape((8, 16), "float32")).compile()
"""
FORWARD = """
SELECT DISTINCT values.shape, details.own_source_line, details.is_layer_input
FROM value_origin_details AS details
JOIN "values" USING (module_id, value_id)
JOIN modules USING (module_id)
WHERE function_name = ? AND origin_kind = 'stacked'
  AND op_name LIKE '%jvp(%' AND op_name NOT LIKE '%transpose(%'
"""


def dimensions(text):
    return tuple(int(size) for size in re.match(r"f32\[([\d,]+)\]", text)[1].split(","))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return what JAX prints of each program, and the database of its dumps."""
    pytest.importorskip("jax", reason="this Python has no jax")
    folder = tmp_path_factory.mktemp("residuals")
    printed = compile_in(folder, COMPILE)
    return json.loads(printed), folder / "t.duckdb"


def compile_in(folder, program):
    """Return a program's output and leave a database of its dumps in this folder."""
    variables = {
        "XLA_FLAGS": f"--xla_dump_to={folder / 'dumps'}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONPATH": str(MODEL),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ingest(str(folder / "t.duckdb"), [Path(folder / "dumps")])
    return done.stdout


@pytest.mark.parametrize("name", ["layers", "layers_named"])
def test_a_scan_saves_what_jax_says_and_bufdb_knows_the_line(compiled, name):
    printed, db = compiled
    layer, scan = printed[name]
    with duckdb.connect(str(db), read_only=True) as con:
        values = con.execute(FORWARD, [name]).fetchall()
    stacks = {dimensions(line) for line in scan if "from the argument" not in line}
    assert {dimensions(shape) for shape, _, _ in values} == stacks
    lines = {
        (dimensions(line), int(re.search(r"\.py:(\d+)", line)[1]))
        for line in layer
        if "from the argument" not in line
    }
    assert lines
    assert {
        (dimensions(shape)[1:], line) for shape, line, is_input in values if not is_input
    } == lines
    arguments = {dimensions(line) for line in layer if "from the argument x" in line}
    assert {dimensions(shape)[1:] for shape, _, is_input in values if is_input} == arguments
    # JAX itself knows no line of the layer there.
    inside = {line for _, line in lines}
    assert all(int(re.search(r"\.py:(\d+)", text)[1]) not in inside
               for text in scan if "from the argument" not in text)  # fmt: skip


def test_each_call_of_a_helper_has_its_line(tmp_path):
    """JAX traces jax.nn.relu in a scanned layer once, and XLA has the line of that for both."""
    pytest.importorskip("jax", reason="this Python has no jax")
    program = tmp_path / "twice.py"
    program.write_text(TWICE)
    compile_in(tmp_path, f"import runpy; runpy.run_path({str(program)!r})")
    with duckdb.connect(str(tmp_path / "t.duckdb"), read_only=True) as con:
        lines = con.execute(
            "SELECT DISTINCT own_source_line FROM value_origin_details "
            "WHERE origin_kind = 'stacked' AND op_name LIKE '%jit(relu)/max'"
        ).fetchall()
    assert {line for (line,) in lines} == {5, 6}
