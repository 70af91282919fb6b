"""Jitted calls of unmodified programs, with JAX: each way to jit, and what is compiled there."""

import csv
import io
import sys

import pytest

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import argparse
import jax, jax.numpy as jnp
from .layers import layer

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    batch = parser.parse_args().batch

    @jax.jit
    def train_step(w, x):
        return jax.grad(lambda w: jax.lax.scan(layer, x, w)[0].sum())(w)

    @jax.jit
    def init(key):
        return jax.random.normal(key, (8, 64, 64))

    w = init(jax.random.key(0))
    print("initialized")
    for _ in range(2):
        w = w - 0.1 * train_step(w, jnp.ones((batch, 64)))
        open("after", "w").close()

if __name__ == "__main__":
    main()
"""
LAYERS = """import jax.numpy as jnp
def layer(x, w):
    return x + jnp.tanh(x @ w), None
"""
FORMS = """import functools
import jax, jax.numpy as jnp

def total(a, b):
    return (a + b).sum()

mesh = jax.make_mesh((1,), ("data",))
over = jax.NamedSharding(mesh, jax.P("data"))
jax.random.normal(jax.random.key(0), (3,))
jax.jit(functools.partial(total, 2.0)).lower(jnp.ones(4)).compile()
jax.jit(total, static_argnames="b", donate_argnums=0)(jnp.ones(5), b=3.0)
jax.jit(jax.grad(total), in_shardings=(over, None))(jnp.ones(8), 2.0)
jax.pmap(lambda x: x * 2)(jnp.ones((1, 3)))
jax.vmap(jax.jit(total))(jnp.ones((2, 3)), jnp.ones((2, 3)))
with jax.set_mesh(mesh):
    jax.jit(lambda x: x @ x)(jnp.ones((4, 4)))

class Trainer:
    def __call__(self, x):
        return x * 3

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x):
        return x * 4

jax.jit(Trainer())(jnp.ones(6))
Trainer().step(jnp.ones(7))
"""
LIBRARIES = """import equinox as eqx
import jax, jax.numpy as jnp
from flax import nnx

@nnx.jit
def of_nnx(model, x):
    return nnx.grad(lambda model: model(x).sum())(model)

@eqx.filter_jit(donate="all")
def of_equinox(model, x, what):
    return eqx.filter_grad(lambda model: jax.vmap(model)(x).sum())(model)

of_nnx(nnx.Linear(3, 3, rngs=nnx.Rngs(0)), jnp.ones((2, 3)))
of_equinox(eqx.nn.Linear(3, 3, key=jax.random.key(0)), jnp.ones((2, 3)), "text")
"""


@pytest.fixture
def package(empty_folder, monkeypatch):
    """The working directory, with the package my."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (empty_folder / "my").mkdir()
    (empty_folder / "my" / "train.py").write_text(TRAIN)
    (empty_folder / "my" / "layers.py").write_text(LAYERS)
    return empty_folder


def rows(text):
    return [*csv.DictReader(io.StringIO(text))]


def test_a_closure_of_main_is_compiled_instead_of_called(package, call):
    command = ["--", sys.executable, "-m", "my.train", "--batch", "128"]
    code, out, err = call("explain", *command)
    assert code == 0, err
    assert "train_step of run train_step" in out and "my/layers.py:3" in out
    assert "initialized" in err
    assert "call 2 of 2 so far, the first that takes a gradient" in err
    assert not (package / "after").exists()
    code, _, err = call("capture", "--run", "whole", *command)
    assert code == 0 and (package / "after").exists(), err
    needs = (
        "SELECT count(DISTINCT need_bytes) AS needs, count(*) AS runs FROM memory_figures "
        "WHERE function_name = 'train_step'"
    )
    assert rows(call("sql", needs, "--format", "csv")[1]) == [{"needs": "1", "runs": "2"}]


def test_each_way_to_jit_is_listed(package, call):
    (package / "forms.py").write_text(FORMS)
    code, out, err = call("calls", "--all", "--format", "csv", "--", sys.executable, "forms.py")
    assert code == 0, err
    functions = rows(out)
    names = ["total", "total", "total", "<lambda>", "<lambda>", "Trainer.__call__", "Trainer.step"]
    assert [row["function"] for row in functions] == names
    lowered, donating, sharded, mapped, last, made, method = functions
    assert (made["defined_at"], method["static"]) == ("forms.py:19", "self")
    assert (lowered["argument_bytes"], lowered["called_at"]) == ("16", "forms.py:10")
    assert (donating["donated"], donating["static"], donating["donated_bytes"]) == ("a", "b", "20")
    assert (sharded["has_gradient"], sharded["mesh"]) == ("true", "data=1")
    assert "data" in sharded["shardings"]
    assert mapped["defined_at"] == "forms.py:13"
    assert last["mesh"] == "data=1"


@pytest.mark.slow
def test_functions_of_libraries_have_their_names(package, call):
    pytest.importorskip("equinox")
    pytest.importorskip("flax")
    (package / "libraries.py").write_text(LIBRARIES)
    command = ["--", sys.executable, "libraries.py"]
    code, out, err = call("calls", "--all", "--format", "csv", *command)
    assert code == 0, err
    functions = [(row["function"], row["has_gradient"], row["defined_at"]) for row in rows(out)]
    assert functions == [
        ("of_nnx", "true", "libraries.py:5"),
        ("of_equinox", "true", "libraries.py:9"),
    ]
    code, out, err = call("explain", "--call", "of_*nox", *command)
    assert code == 0, err
    assert "of_equinox of run of_equinox" in out


@pytest.mark.slow
def test_without_a_gradient_the_largest_call_is_explained(package, call):
    text = "import jax, jax.numpy as jnp\nf = jax.jit(lambda x: jnp.tanh(x @ x))\n"
    (package / "run.py").write_text(f"{text}f(jnp.ones((8, 8)))\nf(jnp.ones((64, 64)))\n")
    code, _, err = call("explain", "--run", "r", "--", sys.executable, "run.py")
    assert code == 0, err
    assert "no call takes a gradient" in err and "--call 2" in err
    assert "f32[64,64]" in call("query", "peak", "--run", "r")[1]


@pytest.mark.slow
def test_a_larger_call_before_the_gradient_is_explained(package, call):
    text = "import jax, jax.numpy as jnp\nscale = jax.jit(lambda x: jnp.tanh(x @ x))\n"
    text += "step = jax.jit(jax.grad(lambda w: (w * w).sum()))\nscale(jnp.ones((64, 64)))\n"
    (package / "run.py").write_text(f"{text}step(jnp.ones(8))\nopen('after', 'w').close()\n")
    command = ["--", sys.executable, "run.py"]
    code, _, err = call("explain", "--run", "r", *command)
    assert code == 0, err
    assert "takes a gradient (--call 2), and a call before it is larger" in err
    assert "(--call 1 does so at once)" in err
    assert "f32[64,64]" in call("query", "peak", "--run", "r")[1]
    assert not (package / "after").exists()
    code, _, err = call("explain", "--run", "s", "--call", "2", *command)
    assert (code, "larger" in err) == (0, False)


def test_options_of_a_function_and_of_a_command(package, call):
    command = ["--", sys.executable, "-c", "1"]
    for words, expected in (
        (["explain", "train.py"], "-- python train.py"),
        (["explain", "a.py:f", "--call", "f"], "--call is about a command"),
        (["explain", "--args", "1", *command], "--args is about FILE.py:FUNCTION"),
        (["explain"], "expected FILE.py:FUNCTION, or -- and a command"),
        (["calls"], "expected -- and a command"),
        (["explain", "--"], "expected a command after --"),
        (["fit", "a.py:f", *command], "got 'a.py:f' and a command"),
        (["fit", "python", "a.py"], "a command goes after --: -- python a.py"),
        (["explain", "python3", "-m", "a", "--x"], "a command goes after --: -- python3 -m a --x"),
        (["explain", "--", "python", "-I", "a.py"], "leave -I out"),
    ):
        code, out, err = call(*words)
        assert (code, out) == (2, ""), err
        assert expected in err and err.count("\n") == 1


SHARDED = """import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

def over(*spec):
    return NamedSharding(mesh, P(*spec))

table = jax.device_put(jnp.ones((256, 64)), over("data"))

def loss(w, x):
    h = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), over("data", "model"))
    return (h @ table.T).sum()

def step(state, x):
    return {"w": state["w"] - jax.grad(loss)(state["w"], x), "step": state["step"] + 1}

shardings = {"w": over(None, "model"), "step": over()}
state = jax.device_put({"w": jnp.ones((64, 64)), "step": jnp.int32(0)}, shardings)
with mesh:
    jitted = jax.jit(step, in_shardings=(shardings, over("data")), out_shardings=shardings)
    jitted(state, jnp.ones((128, 64)))
"""


@pytest.mark.slow
def test_a_mesh_is_that_of_the_target(package, call, monkeypatch):
    pytest.importorskip("libtpu", reason="no libtpu to compile with")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    (package / "sharded.py").write_text(SHARDED)
    options = ["explain", "--run", "r", "--call", "step"]
    command = ["--", sys.executable, "sharded.py"]
    code, _, err = call(*options, "--target", "v5e-8", *command)
    assert code == 0, err
    sql = "SELECT shape FROM value_details WHERE allocation_kind = 'parameter' ORDER BY size_bytes"
    shapes = [
        row["shape"].partition("{")[0] for row in rows(call("sql", sql, "--format", "csv")[1])
    ]
    assert sorted(set(shapes)) == ["f32[32,64]", "f32[64,32]", "s32[]"]
    code, _, err = call(*options, "--target", "v5e-4", *command)
    assert code == 2 and "sharded over 8 devices, v5e-4 has 4" in err
