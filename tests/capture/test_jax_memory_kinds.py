"""Arguments that a function has in host memory, for a target."""

import re
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
    described = SimpleNamespace(devices=jax.devices(), name="cpu", platform="cpu")
    assert memory_note(args, {}, described) is None


def test_a_target_without_it_has_a_note():
    unknown = SimpleNamespace(addressable_memories=list)
    described = SimpleNamespace(devices=[unknown], name="new:chip", platform="new")
    note = memory_note((in_host_memory(256, 1024), 1.0), {}, described)
    assert note.startswith("arguments of 1.00 MiB in pinned_host are in device memory here")
    assert memory_note((jax.ShapeDtypeStruct((8,), "float32"),), {}, described) is None
    assert memory_note((in_host_memory(8),), {}, None) is None
    gpu = SimpleNamespace(devices=[unknown], name="gpu:h100", platform="cuda")
    assert memory_note((in_host_memory(8),), {}, gpu) is None  # it is set in the module


def placements(stage):
    """The memory of arguments and results in a module, and the calls that move values there."""
    lines = stage.as_text().splitlines()
    (signature,) = (line for line in lines if "func.func public @main" in line)
    kinds = re.findall(r'(%arg\d|->|mhlo.memory_kind = "pinned_host")', signature)
    return kinds, sorted(
        line.partition("{")[2]
        for line in lines
        if "@annotate_device_placement" in line and "pinned_host" in line
    )


def test_memories_are_set_as_jax_does_on_a_device():
    host, x = in_host_memory(8, 8), jax.ShapeDtypeStruct((8, 8), "float32")

    def step(unused, w, x):
        y = jax.device_put(w, jax.memory.Space.Device) @ x
        return y, y + 1

    on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    written = jax.jit(step, out_shardings=(on_device, host.sharding)).lower(x, host, x)
    plain = jax.jit(step).lower(x, host, x)
    kinds = [None, "pinned_host", None], [None, "pinned_host"]
    assert placements(call._in_memories(plain, *kinds)) == placements(written)
    moved = call._in_memories(jax.jit(lambda w, x: x).lower(host, x), ["pinned_host", None], [None])
    assert placements(moved) == (["%arg0", "->"], [])  # the first is not used
    moved = call._in_memories(jax.jit(lambda x: x + 1).lower(x), ["pinned_host"], [None])
    assert placements(moved)[0] == ["%arg0", 'mhlo.memory_kind = "pinned_host"', "->"]


def test_a_result_without_a_sharding_is_where_its_value_is():
    def step(w):
        return jax.device_put(w * 2, jax.memory.Space.Host), w

    unknown = SimpleNamespace(addressable_memories=list)
    traced = jax.jit(step).trace(jax.ShapeDtypeStruct((8,), "float32"))
    assert call._memories(traced, unknown) == ([None], ["pinned_host", None])
    assert call._memories(traced, jax.devices()[0]) == ([None], [None, None])
