"""A Pallas kernel that needs more vector memory of a TPU than its limit."""

import json
import re
import subprocess

import pytest

for package in ("jax", "libtpu"):
    pytest.importorskip(package, reason=f"this Python has no {package}")

PROGRAM = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl

def double(x, out):
    out[...] = x[...] * 2

def step(x):
    rows = pl.BlockSpec((2048, 1024), lambda i: (i, 0))
    run = pl.pallas_call(double, grid=(x.shape[0] // 2048,), in_specs=[rows], out_specs=rows,
                         out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
    return run(run(x) + 1)
"""


@pytest.mark.slow
def test_the_least_limit_with_which_a_kernel_compiles(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "kernel.py").write_text(PROGRAM)
    arguments = ["--args", "f32[65536,1024]", "--target", "v5e-4"]
    code, out, err = call(
        "fit", "kernel.py:step", *arguments, "--also", "vmem", "--format", "json", "--db", "d",
        "--patch", "p.patch",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(out)
    best = next(one for one in answer["plans"] if one["rank"] == answer["best"])
    assert best["is_verified"]
    (limit,) = map(int, re.findall(r"vmem_limit_bytes=(\d+)", best["changes"][0]))
    assert 16 << 20 < limit < 128 << 20
    assert any(f"({limit} bytes): with vmem_limit_bytes one byte lower the program" in note
               for note in answer["notes"])  # fmt: skip
    sql = "SELECT DISTINCT used_bytes, limit_bytes FROM kernels WHERE used_bytes > 0"
    code, out, err = call("sql", sql, "--format", "json", "--db", "d")
    assert (code, json.loads(out)) == (0, [{"used_bytes": limit, "limit_bytes": limit}]), err
    subprocess.run(["patch", "-p1", "-s", "-i", "p.patch"], check=True)
    code, out, err = call("explain", "kernel.py:step", *arguments, "--db", "d")
    assert code == 0, err
    assert "(100.0%), " in next(line for line in out.splitlines() if line.startswith("kernel "))
