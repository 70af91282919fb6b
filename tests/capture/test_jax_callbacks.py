"""Programs that call Python back, for a GPU that is only described."""

import sys

import pytest

from bufdb.capture.callbacks import unbound

jax = pytest.importorskip("jax", reason="this Python has no jax")

from jax._src import xla_bridge  # noqa: E402

CHECKED = """import jax, jax.numpy as jnp, numpy as np

def loss(w, x):
    h = jnp.tanh(x @ w)
    jax.debug.print("h {}", h.sum())
    total = jax.lax.stop_gradient(h.sum())
    kept = jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((), total.dtype), total)
    return h.sum() + kept

step = jax.jit(lambda w, x: w - jax.grad(loss)(w, x))
step(jnp.ones((64, 64)), jnp.ones((256, 64)))
"""


def printing(x):
    jax.debug.print("x {}", x)
    return x + 1


def test_a_lowered_function_calls_nothing_back():
    def stage(platform):
        names = []

        def lower():
            names.append(xla_bridge.canonicalize_platform)
            return jax.jit(printing).lower(jax.ShapeDtypeStruct((), "float32"))

        lowered = unbound(platform, lower)
        return len(lowered._lowering.compile_args["host_callbacks"]), *names

    before = xla_bridge.canonicalize_platform
    assert stage("cpu") == (1, before)
    count, during = stage("cuda")
    assert count == 0 and during("gpu") in ("cuda", "rocm") and during("cpu") == "cpu"
    assert xla_bridge.canonicalize_platform is before
    with pytest.raises(ZeroDivisionError):
        unbound("cuda", lambda: 1 // 0)
    assert xla_bridge.canonicalize_platform is before


@pytest.mark.slow
def test_a_program_with_callbacks_is_for_a_gpu_too(empty_folder, call, monkeypatch):
    pytest.importorskip("jax_cuda12_plugin", reason="no plugin for CUDA to compile with")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (empty_folder / "checked.py").write_text(CHECKED)
    code, out, err = call("explain", "--target", "gpu:h100", "--", sys.executable, "checked.py")
    assert code == 0 and "of run <lambda>@gpu:h100" in out, err
    code, out, err = call(
        "fit", "--target", "gpu:h100", "--limit", "1MiB", "--", sys.executable, "checked.py"
    )
    assert code == 0, err
