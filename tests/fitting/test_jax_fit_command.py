"""`bufdb fit` from the command line: a small scanned program on the CPU."""

import json
import subprocess
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

PROGRAM = """import jax
import jax.numpy as jnp


def layer(x, p):
    h = x @ p["w"]
    g = jnp.tanh(h) * jnp.sin(h)
    return x + g @ p["v"], None


def loss(params, x):
    out, _ = jax.lax.scan(layer, x, params)
    return (out**2).sum()


def step(params, x):
    grads = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def args(rows=512, layers=6):
    stack = jax.ShapeDtypeStruct((layers, 32, 32), jnp.float32)
    return {"w": stack, "v": stack}, jax.ShapeDtypeStruct((rows, 32), jnp.float32)
"""


@pytest.fixture
def fit(tmp_path, call, monkeypatch):
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return lambda *words: call(
        "fit", "train.py:step", "--args", "args()", "--db", "d.duckdb", *words
    )


def test_a_plan_fits_and_its_patch_needs_as_much(fit, call, tmp_path):
    code, out, err = fit("--limit", "1MiB", "--format", "json")
    assert code == 0, err
    answer = json.loads(out)
    best = answer["plans"][answer["best"] - 1]
    assert answer["as_written"]["need_bytes"] > 2**20 >= best["need_bytes"]
    assert best["fits"] and best["is_verified"]
    assert best["extra_work_ratio"] < 0.17
    assert best["recomputed_lines"] and best["patch"] == answer["patch"]
    (tmp_path / "p.diff").write_text(answer["patch"])
    # The function is not jitted in the file, so that donating is a step in words: it fits without.
    assert not best["donated"] and not best["steps"]
    assert any(row["donated"] and row["steps"] for row in answer["plans"])
    subprocess.run(["git", "apply", "p.diff"], cwd=tmp_path, check=True)
    assert "checkpoint" in (tmp_path / "train.py").read_text()
    text = "import jax, train; step = jax.jit(train.step)"
    (tmp_path / "jitted.py").write_text(f"{text}\nargs = train.args\n")
    code, out, _ = call("explain", "jitted.py:step", "--args", "args()", "--db", "e.duckdb")
    _, rows, _ = call(
        "sql", "SELECT need_bytes FROM memory_figures", "--db", "e.duckdb", "--format", "csv"
    )
    assert int(rows.split()[1]) == best["need_bytes"]
    _, runs, _ = call("sql", "SELECT run_name FROM runs", "--db", "d.duckdb", "--format", "csv")
    assert {"fit:as-written", best["run"]} <= set(runs.split())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this jax has no JAX_REMAT3")
def test_with_remat3_a_plan_and_its_patch_are_equal(fit, monkeypatch, tmp_path):
    text = PROGRAM.replace('h = x @ p["w"]', 'h = checkpoint_name(x @ p["w"], "hidden")')
    text = text.replace("jax.lax.scan(layer,", "jax.lax.scan(jax.checkpoint(layer),")
    (tmp_path / "train.py").write_text(f"from jax.ad_checkpoint import checkpoint_name\n{text}")
    monkeypatch.setenv("JAX_REMAT3", "1")
    code, out, err = fit("--format", "json", "--budget-compiles", "4")
    assert code == 0, err
    answer = json.loads(out)
    proved = [row for row in answer["plans"] if row["is_verified"]]
    # The source saves nothing, so saving costs less work, and the patch saves it, too.
    assert [row for row in proved if row["extra_work_ratio"] < 0], answer["notes"]
    assert not [note for note in answer["notes"] if "its patched files" in note]


def test_what_fits_as_written_needs_no_plan(fit, tmp_path):
    code, out, err = fit("--limit", "1GiB", "--patch", "p.diff")
    assert code == 0
    assert out.startswith("train.py:step needs ") and "which fits 1.00 GiB" in out
    assert err.endswith("there is no patch to write: no plan is needed, it fits as written\n")
    assert not (tmp_path / "p.diff").exists()


def test_nothing_fits_and_the_least_is_shown(fit, tmp_path):
    (tmp_path / "p.diff").write_text("of yesterday")
    code, out, err = fit("--limit", "1KiB", "--budget-compiles", "3", "--patch", "p.diff")
    assert code == 1
    assert "nothing fits 1.00 KiB, the least is plan " in " ".join(out.split())
    assert "; not tried: --also microbatch,chunks" in " ".join(out.split())
    assert "plan" in out.split("\n\n")[1] and "as written" in out.split("\n\n")[1]
    assert err.endswith("there is no patch to write: no plan fits; p.diff is as it was\n")
    assert (tmp_path / "p.diff").read_text() == "of yesterday"


def test_without_time_nothing_is_said_to_be_impossible(fit):
    code, out, err = fit("--limit", "1KiB", "--timeout", "0.5")
    assert (code, out) == (124, "")
    assert err.splitlines()[-1].startswith("bufdb: error: stopped after 0.5 s (--timeout), while ")


@pytest.mark.slow
def test_microbatches_of_a_sharded_batch_are_sharded(fit, monkeypatch, tmp_path):
    text = PROGRAM.replace("(out**2).sum()", "(out**2).mean()")
    text = text.replace("(rows, 32), jnp.float32", "(4 * rows, 32), jnp.float32, sharding=ROWS")
    mesh = """
MESH = jax.sharding.Mesh(jax.devices(), ("rows",))
ROWS = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("rows"))
"""
    (tmp_path / "train.py").write_text(text + mesh)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    code, out, err = fit(
        "--limit", "1.6MiB", "--also", "microbatch", "--budget-compiles", "5", "--format", "json"
    )
    assert code == 0, err
    answer = json.loads(out)
    # Were a part of the batch on one device, all devices would compute it, for no less memory.
    best = answer["plans"][answer["best"] - 1]
    assert "in 2 microbatches" in best["changes"][0] and best["is_verified"]
    assert best["need_bytes"] < 0.6 * answer["as_written"]["need_bytes"]


@pytest.mark.slow
def test_the_largest_size_is_proved_on_both_sides(fit, call):
    options = ("fit", "train.py:step", "--args", "args({rows}00)", "--db", "v.duckdb")
    more = ("--vary", "rows=3", "--limit", "1MiB", "--budget-compiles", "2", "--format", "json")
    code, out, _ = call(*options, *more)
    assert code == 0
    vary = json.loads(out)["vary"]
    assert vary["name"] == "rows"
    written = vary["largest"][0]
    assert written["rank"] is None and written["is_proved"]
    assert written["need_bytes"] <= 2**20 < written["next_need_bytes"]
    assert max(one["value"] for one in vary["largest"]) > written["value"]
    stored = "SELECT run_name, need_bytes FROM memory_figures"
    _, rows, _ = call("sql", stored, "--db", "v.duckdb", "--format", "csv")
    needs = dict(row.rsplit(",", 1) for row in rows.split()[1:])
    largest = [one for one in vary["largest"] if one["value"] != 3]
    assert {one["run"]: str(one["need_bytes"]) for one in largest}.items() <= needs.items()
    assert written["run"] == f"fit:as-written:rows={written['value']}"
    assert f"fit:as-written:rows={written['next_value']}" in needs
    code, _, err = call(*options, "--vary", "batch", "--limit", "1MiB")
    assert (code, "wants {batch} in --args" in err) == (2, True)


DECODING = """import jax, jax.numpy as jnp

@jax.jit
def step(cache, x):
    return jax.lax.dynamic_update_slice(cache, x, (3, 0)), x.sum()
"""


def test_a_function_without_a_gradient_donates_its_cache(call, fit, tmp_path):
    (tmp_path / "decode.py").write_text(DECODING)
    code, out, err = call(
        "fit", "decode.py:step", "--args", "f32[512, 512], f32[1, 512]", "--limit", "1.5MiB",
        "--db", "d.duckdb", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(out)
    (plan,) = answer["plans"]
    assert (plan["donated"], plan["is_verified"]) == (["cache"], True)
    assert answer["as_written"]["need_bytes"] - plan["need_bytes"] == 512 * 512 * 4
    assert "takes no gradient" in answer["notes"][0]


CASES = Path(__file__).parents[2].parent / "shared" / "cases"


@pytest.mark.by_hand
@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are in another repository")
@pytest.mark.parametrize(("limit", "code"), [("1MiB", 1), ("1GiB", 0)])
def test_the_answer_of_a_case_is_not_lost_with_patch(call, tmp_path, monkeypatch, limit, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    step = f"{CASES / 'fit-patch-lost' / 'tiny.py'}:step"
    options = ("fit", step, "--args", "f32[8,64,64], f32[4096,64]", "--limit", limit)
    alone = call(*options, "--db", "a.duckdb")
    patched = call(*options, "--db", "b.duckdb", "--patch", "t.patch")
    assert patched[:2] == alone[:2] and alone[0] == code
    assert "there is no patch to write: no plan" in patched[2]


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are in another repository")
def test_calls_of_the_case_of_nnx_are_checkpointed_by_nnx(monkeypatch):
    pytest.importorskip("optax", reason="this Python has no optax")
    nnx = pytest.importorskip("flax.nnx", reason="this Python has no flax")
    from bufdb.fitting.function import Function
    from bufdb.fitting.patch import patch
    from bufdb.fitting.plans import Plan

    monkeypatch.syspath_prepend(CASES / "fit-programs")
    monkeypatch.setattr(Function, "platform", "gpu")
    import nnx_blocks

    objects = nnx.eval_shape(nnx_blocks.objects)  # no weights are computed
    for name, args in (("step", nnx_blocks.args()), ("train_step", objects)):
        program = Function(getattr(nnx_blocks, name), args, {}, name).program()
        path = nnx_blocks.__file__
        made = patch(program, Plan(calls=program.calls), {path: Path(path).read_text()})
        assert "nnx.remat(lambda block: block(x, mask))(block)" in made.diff
