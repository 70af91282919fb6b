"""Arguments that a function has in host memory, for a target."""

from types import SimpleNamespace

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

from bufdb.capture import call  # noqa: E402
from bufdb.capture.child import memory_note  # noqa: E402


def in_host_memory(*shape):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    return jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)


def test_a_target_with_host_memory_keeps_it():
    @jax.jit
    def step(w, x):
        return jax.device_put(w, jax.memory.Space.Device) @ x

    args = in_host_memory(8, 8), jax.ShapeDtypeStruct((8, 8), "float32")
    text = call.lowered(step, args, {}, "cpu", jax.devices(), "cpu").as_text()
    (signature,) = (line for line in text.splitlines() if "func.func public @main" in line)
    first, second = signature.split("%arg1")
    assert "pinned_host" in first and "pinned_host" not in second
    described = SimpleNamespace(devices=jax.devices(), name="cpu")
    assert memory_note(args, {}, described) is None


def test_a_target_without_it_has_a_note():
    unknown = SimpleNamespace(addressable_memories=list)
    described = SimpleNamespace(devices=[unknown], name="gpu:h100")
    note = memory_note((in_host_memory(256, 1024), 1.0), {}, described)
    assert note.startswith("arguments of 1.00 MiB in pinned_host are in device memory here")
    assert memory_note((jax.ShapeDtypeStruct((8,), "float32"),), {}, described) is None
    assert memory_note((in_host_memory(8),), {}, None) is None
