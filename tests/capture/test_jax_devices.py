"""Devices that a program does not have here, with JAX: their number, its mesh, its process."""

import csv
import io
import re
import sys

import pytest

from bufdb.capture import target
from bufdb.capture.call import Moved

pytest.importorskip("jax", reason="this Python has no jax")

FSDP = """import sys
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def main():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))

    def over(*spec):
        return NamedSharding(mesh, P(*spec))

    def layer(x, w):
        x = x + jnp.tanh(x @ w)
        return jax.lax.with_sharding_constraint(x, over("data", None)), None

    def loss(params, x):
        return jax.lax.scan(layer, x, params)[0].sum()

    @jax.jit
    def train_step(params, x):
        grads = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = jax.device_put(jnp.ones((8, 64, 64)), over(None, "data", "model"))
    x = jax.device_put(jnp.ones((4096, 64)), over("data", None))
    for _ in range(3):
        params = train_step(params, x)
        open("after", "w").close()

if __name__ == "__main__":
    main()
"""
CONTROLLERS = """import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.distributed.initialize("10.0.0.1:1234", num_processes=4, process_id=2)
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
rows = np.ones((64 // jax.process_count(), 32), np.float32)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), rows)
rows = np.ones((16, 32), np.float32)
y = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), rows, (64, 32))
assert x.shape == y.shape
print("process", jax.process_index(), "of", jax.process_count(), "has", x.shape)
jax.jit(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()))(jnp.ones((32, 32)), x)
"""
FUNCTION = """import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

@jax.jit
def step(w, x):
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
    return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
"""
FORMS = """import functools, sys
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

kind = sys.argv[1]
types = (AxisType.Explicit if kind == "explicit" else AxisType.Auto,) * 2
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=types)
table = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("model", None)))
w, x = jnp.ones((64, 64)), jnp.ones((128, 64))

def loss(w, x):
    return (jnp.tanh(x @ w) @ table).sum()

if kind == "shard_map":
    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    def step(w, x):
        assert x.shape[0] * mesh.shape["data"] == 128
        return jax.lax.psum(jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), "data")
    step(w, x)
elif kind == "explicit":
    with jax.set_mesh(mesh):
        step = jax.jit(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()))
        step(jax.device_put(w, P(None, "model")), jax.device_put(x, P("data", None)))
elif kind == "in_shardings":
    shardings = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P("data"))
    with mesh:
        jax.jit(jax.grad(loss), in_shardings=shardings)(w, x)
elif kind == "pmap":
    n = jax.local_device_count()
    step = lambda w, x: jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
    jax.pmap(step)(jnp.ones((n, 64, 64)), jnp.ones((n, 128 // n, 64)))
"""
PARAMETERS = (
    "SELECT run_name, shape, size_bytes FROM value_details WHERE allocation_kind = 'parameter' "
    "ORDER BY run_name, size_bytes"
)


@pytest.fixture
def folder(empty_folder, monkeypatch):
    """The working directory, with the programs."""
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    programs = {"fsdp": FSDP, "controllers": CONTROLLERS, "function": FUNCTION, "forms": FORMS}
    for name, text in programs.items():
        (empty_folder / f"{name}.py").write_text(text)
    return empty_folder


def command(*words):
    return ["--", sys.executable, *words]


def shapes(call):
    """Return the shapes of the parameters of the programs that are stored, by program."""
    rows = [*csv.DictReader(io.StringIO(call("sql", PARAMETERS, "--format", "csv")[1]))]
    return [row["shape"].partition("{")[0] for row in rows]


def test_devices_are_simulated(folder, call):
    code, _, err = call("explain", *command("fsdp.py"))
    assert code == 1
    assert "array of size 1 into shape (4,2)" in err
    assert err.splitlines()[-1].endswith(
        "a --target of 8 devices, or --devices 8, simulates as many"
    )
    code, _, err = call("explain", "--devices", "8", *command("fsdp.py"))
    assert code == 0, err
    assert shapes(call) == ["f32[8,16,32]", "f32[1024,64]"]
    assert "the program has 8 simulated devices; --devices N" in err
    assert not (folder / "after").exists()


def test_the_plan_of_simulated_devices_is_that_of_the_run(folder, call, monkeypatch):
    assert call("explain", "--devices", "8", "--target", "cpu", *command("fsdp.py"))[0] == 0
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    assert call("capture", "--run", "whole", *command("fsdp.py"))[0] == 0
    assert (folder / "after").exists()
    sql = (
        "SELECT count(DISTINCT need_bytes) AS needs, count(*) AS runs FROM memory_figures "
        "WHERE function_name = 'train_step'"
    )
    assert call("sql", sql, "--format", "csv")[1].split() == ["needs,runs", "1,2"]


@pytest.mark.by_hand
def test_a_mesh_of_other_sizes(folder, call):
    options = ["explain", "--devices", "8", "--mesh"]
    code, _, err = call(*options, "data=2,model=4", *command("fsdp.py"))
    assert code == 0, err
    assert shapes(call) == ["f32[8,32,16]", "f32[2048,64]"]
    for mesh, expected in (
        ("fsdp=8", "no mesh of the program has these axes; .*: data=4,model=2"),
        ("data=2", "data=2,model=2 is 4 devices, --devices is 8"),
        ("data=3", "data=3 is 3 devices, --devices is 8"),
    ):
        code, out, err = call(*options, mesh, *command("fsdp.py"))
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert re.search(expected, err), err


def test_one_process_is_asked(folder, call):
    code, _, err = call("explain", "--devices", "4", *command("controllers.py"))
    assert code == 0, err
    assert "process 0 of 1 has (64, 32)" in err
    assert "jax.distributed.initialize does nothing here" in err
    assert "jax.process_count() is 1, not 4" in err
    assert "f32[16,32]" in shapes(call)


def test_a_function_of_a_file_has_devices(folder, call):
    start = ["function.py:step", "--args", "f32[32,32], f32[64,32]"]
    code, _, err = call("explain", *start)
    assert code == 1 and "--devices 8, simulates as many" in err
    code, _, err = call("explain", *start, "--devices", "8", "--mesh", "data=8")
    assert code == 0, err
    assert "f32[8,32]" in shapes(call)
    assert "8 simulated devices" in err


def test_a_changed_program_has_the_devices_of_the_run(folder, call):
    start = ["what-if", "--without", "line:fsdp.py:17"]
    code, _, err = call(*start, *command("fsdp.py"))
    assert code == 1 and err.endswith("; --devices 8 simulates as many\n"), err
    devices = ["--devices", "8", "--mesh", "data=2,model=4"]
    code, out, err = call(*start, "--run", "base", *devices, *command("fsdp.py"))
    assert code == 0 and "8 simulated devices" in err, err
    start += ["train_step", "--run", "base", "--verify"]
    code, out, err = call(*start, *command("fsdp.py"))
    assert out.startswith("train_step (base → base:verify, host): saved 0 B"), out + err
    assert shapes(call) == ["f32[8,32,16]", "f32[2048,64]"] * 2
    code, out, err = call(*start, f"{sys.executable} fsdp.py", "--devices", "8")
    assert (code, out) == (2, "") and "--devices 8 is about the call of a command" in err


@pytest.mark.by_hand
def test_flags_are_compared_with_simulated_devices(folder, call):
    start = ["blame", "--quick", "--flag", "xla_disable_hlo_passes=cse"]
    function = ["function.py:step", "--args", "f32[32,32], f32[64,32]"]
    code, _, err = call(*start, *function)
    assert code == 1 and "or --devices 8, simulates as many" in err, err
    for words in (["--mesh", "data=8", *function], command("fsdp.py")):
        code, out, err = call(*start, "--devices", "8", *words)
        assert code == 0 and ": no jump: " in out, err
        assert err.count("the program has 8 simulated devices") == 1
    code, _, err = call(*start, "--devices", "8", "--mesh", "fsdp=8", *function)
    assert code == 2 and "name axes of one of its meshes: data=8" in err


def test_a_sweep_of_a_call_has_devices(folder, call):
    sweep = ["capture", "--devices", "8", "--run", "s"]
    code, _, err = call(
        *sweep, "--call", "train_step", "--sweep", "n=1", *command("fsdp.py", "{n}")
    )
    assert code == 0 and "8 simulated devices" in err, err
    assert shapes(call) == ["f32[8,16,32]", "f32[1024,64]"]
    for words, expected in (
        ([], "--devices: only with --call"),
        (["--call", "f"], "for one run: bufdb explain --call f --devices 8 -- "),
    ):
        code, out, err = call(*sweep, *words, *command("fsdp.py"))
        assert (code, out) == (2, "") and expected in err


@pytest.mark.slow
def test_a_script_of_eight_devices_has_any_mesh(folder, call):
    pytest.importorskip("libtpu", reason="no libtpu to compile with")
    words = ["explain", "--devices", "8", "--target", "v5e-16", "--mesh", "data=8,model=2"]
    code, _, err = call(*words, *command("fsdp.py"))
    assert code == 0, err
    assert shapes(call) == ["f32[8,8,32]", "f32[512,64]"]


@pytest.mark.slow
def test_a_patch_of_a_sharded_program_is_proved(folder, call):
    words = ["--limit", "4MiB", "--devices", "8", "--patch", "fit.patch", *command("fsdp.py")]
    code, out, err = call("fit", *words)
    assert code == 0, err
    assert "compiled, patch too" in out and (folder / "fit.patch").exists()
    assert "8 simulated devices" in out
    assert not (folder / "after").exists()


@pytest.mark.sample(0, 4)
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("shard_map", ["f32[64,64]", "f32[64,64]"]),
        ("explicit", ["f32[64,16]", "f32[64,64]"]),
        ("in_shardings", ["f32[64,16]", "f32[64,64]"]),
        ("pmap", ["f32[1,16,64]", "f32[1,64,64]"]),
    ],
)
def test_each_way_to_shard_has_the_devices_of_the_target(folder, call, kind, sizes):
    pytest.importorskip("libtpu", reason="no libtpu to compile with")
    mesh = [] if kind == "pmap" else ["--mesh", "data=2,model=4"]
    code, _, err = call("explain", "--target", "v5e-8", *mesh, *command("forms.py", kind))
    assert code == 0, err
    assert sorted(shapes(call)) == sorted(sizes)
    assert "8 simulated devices, as many as v5e-8" in err


def test_the_number_of_devices_is_the_compilers(monkeypatch):
    pytest.importorskip("libtpu", reason="no libtpu to compile with")
    for name, value in target.QUIET.items():
        monkeypatch.setenv(name, value)
    names = [f"{one.names[0]}-{one.counted * chips}" for one in target.TPUS for chips in (1, 4, 16)]
    for name in (*names, "v5litepod-8", "tpu:v5p:2x2x4", "tpu7x-8"):
        assert len(target.target(name).devices) == target.device_count(name), name


def test_gpus_are_in_hosts_of_eight(monkeypatch):
    pytest.importorskip("jax_cuda12_plugin", reason="no plugin for CUDA to compile with")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for count in (1, 4, 8, 16, 12):
        assert len(target.target("gpu:h100", count).devices) == count


@pytest.mark.slow
def test_a_program_that_counts_no_devices_has_no_note(folder, call):
    head = "import jax, jax.numpy as jnp\nf = jax.jit(jax.grad(lambda x: (x @ x).sum()))\n"
    (folder / "alone.py").write_text(f"{head}f(jnp.ones((8, 8)))\n")
    (folder / "counts.py").write_text(f"{head}f(jnp.ones((8 * len(jax.devices()), 64)))\n")
    start = ["explain", "--target", "cpu", "--devices", "8"]
    code, _, err = call(*start, *command("alone.py"))
    assert code == 0 and "simulated" not in err, err
    code, _, err = call(*start, *command("counts.py"))
    assert code == 0 and "the program has 8 simulated devices" in err, err
    assert "f32[64,64]" in call("query", "peak", "--run", "<lambda>@cpu")[1]


def test_a_jaxpr_may_be_its_own_closed_one():
    """As from JAX 0.12 on."""

    class Program:
        eqns, consts = (), ()

        @property
        def jaxpr(self):
            return self

    program = Program()
    assert Moved([], "v5e")._value({"jaxpr": program})["jaxpr"] is program
