"""Capture of what JAX lowers and compiles, without flags or files: equal to its text dump."""

import json
import os
import subprocess
import sys

import duckdb
import pytest
from places import ROOT
from proto_rows import differences

from bufdb.ingest.rows import MODULE_TABLES

pytest.importorskip("jax", reason="this Python has no jax")
SUPPORT = ROOT / "tests" / "support"
EXAMPLES = ROOT / "data" / "examples"
OF_FILES = {"files", "diagnostics", "row_counts", "compiler_options"}
"""Tables about files and options, which differ from way to way."""
RUNS = ("text", "lowered", "captured", "compiled")


def run(*command, **variables):
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", **variables}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def taken_in(tmp_path_factory):
    """The database of all ways, and what else came of them."""
    folder = tmp_path_factory.mktemp("functions")
    path = folder / "t.duckdb"
    (folder / "tmp").mkdir()  # its own, in which it must leave nothing
    out = run(
        *(SUPPORT / "jax_functions.py", path, ROOT / "data" / "model", folder / "dumps"),
        TMPDIR=str(folder / "tmp"),
    )
    with duckdb.connect(str(path), read_only=True) as con:
        yield con, json.loads(out)


def rows(con, table, run, exclude):
    columns = [name for name, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()]
    kept = ", ".join(f't."{name}"' for name in columns if name not in exclude)
    return con.execute(
        f'SELECT modules.function_name, {kept} FROM "{table}" AS t JOIN modules USING (module_id) '
        "WHERE modules.run_name = ? ORDER BY ALL",
        [run],
    ).fetchall()


@pytest.mark.parametrize("other", ["lowered", "captured"])
def test_every_row_is_that_of_the_text_dump(taken_in, other):
    con, results = taken_in
    functions = con.execute(
        "SELECT function_name FROM modules WHERE run_name = ? ORDER BY ALL", [other]
    ).fetchall()
    assert [name for (name,) in functions] == sorted(results["programs"])
    # The block calls from another line of the script.
    others = {"modules"} | ({"stack_frames"} if other == "captured" else set())
    for table in sorted(set(MODULE_TABLES) - OF_FILES - others):
        assert rows(con, table, other, {"module_id"}) == rows(con, table, "text", {"module_id"})


@pytest.mark.parametrize("other", RUNS[1:])
def test_every_figure_is_that_of_the_text_dump(taken_in, other):
    con, _ = taken_in
    keys = {"module_id", "run_name", "module_key"}
    figures = rows(con, "memory_figures", other, keys)
    assert figures == rows(con, "memory_figures", "text", keys)
    assert len(figures) >= 5
    # Without the text before optimizations an op that jnp jits has no line, and is for a use.
    of_names = () if other == "compiled" else ("value_users",)
    for table in ("peak_values", "live_ranges", *of_names):
        assert rows(con, table, other, {"module_id"}) == rows(con, table, "text", {"module_id"})


def test_the_same_program_is_the_same_module(taken_in):
    con, results = taken_in
    assert results["again"] == {name: [0, 1] for name in results["programs"]}
    counts = con.execute("SELECT run_name, count(*) FROM modules GROUP BY ALL").fetchall()
    assert dict(counts) == dict.fromkeys(RUNS, len(results["programs"]))


def test_where_it_came_from_is_no_private_directory(taken_in):
    con, results = taken_in
    paths = dict(con.execute("SELECT run_name, source_path FROM runs").fetchall())
    assert paths["lowered"] == paths["compiled"] == "a compiled function"
    assert paths["captured"] == "a captured block"
    options = con.execute(
        "SELECT DISTINCT option_value FROM compiler_options JOIN modules USING (module_id) "
        "WHERE run_name <> 'text' AND option_value LIKE '%bufdb-%'"
    ).fetchall()
    assert options == []
    assert results["left"] == []


def test_a_block_without_a_compilation_is_an_error(taken_in):
    _, results = taken_in
    assert "jax.clear_caches()" in results["nothing"]
    assert "bufdb capture -- COMMAND" in results["nothing"]
    assert results["is_restored"]


def test_explain_takes_functions_abstract_arguments_and_names(taken_in):
    _, results = taken_in
    assert results["plain"]["function_name"] == results["further"] == "plain"
    assert results["plain"]["peak_bytes"] == results["by_name"]["peak_bytes"] >= 64 * 64 * 4
    assert "it does not fit" in results["limited"]


def test_what_cannot_be_explained_is_refused(taken_in):
    _, results = taken_in
    assert "neither arguments nor a target" in results["stage_with_args"]
    assert "expected a function, found int" in results["no_function"]
    assert "compiler_options" in results["compiled_options"]


def test_the_example_script_runs(tmp_path):
    out = run(EXAMPLES / "explain.py")
    assert "highest peak: " in out
    assert "step: peak " in out
    assert "bytes " in out.splitlines()[-1]


def test_the_example_notebook_runs():
    cells = json.loads((EXAMPLES / "explain.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    script = "import ast, json, sys\nspace, shown = {}, []\n"
    script += f"for text in {code!r}:\n"
    script += """
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
print(json.dumps(shown))
"""
    shown = json.loads(run("-c", script))
    assert shown[0].startswith('<div><svg role="img"')
    assert "highest peak: " in shown[0] and '.db.report("page.html")' in shown[0]
    assert "peak " in shown[1]
    assert "held_bytes" in shown[2]
    assert "peak " in shown[3]


SPEC = f"{ROOT / 'data' / 'model' / 'loops.py'}:layers"


@pytest.fixture
def explain(call, monkeypatch):
    """Run the command in this process; return exit code, output and notes."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "")
    return lambda *arguments: call("explain", *arguments)


def test_explain_shows_the_function_of_a_file(explain, tmp_path):
    db = tmp_path / "t.duckdb"
    code, out, err = explain(SPEC, "--args", "LAYERS, BATCH", "--db", db, "--format", "json")
    assert code == 0, err
    peak = json.loads(out)["peak"]
    assert (peak["run_name"], peak["function_name"]) == ("layers", "layers")
    _, out, _ = explain(SPEC, "--args", '{"a": f32[6, 40, 24]}, f32[32, 40]', "--db", db)
    assert "of run layers" in out
    with duckdb.connect(str(db), read_only=True) as con:
        (path,) = con.execute("SELECT source_path FROM runs").fetchone()
        assert path == SPEC


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([SPEC.replace("layers", "layer"), "--args", "1"], 2, "did you mean 'layers'"),
        (["none.py"], 2, "expected FILE.py:FUNCTION"),
        ([SPEC, "--args", "LAYERS, BATCH", "--target", "tpu"], 2, "--target wants tpu:v5e:2x2"),
        ([SPEC, "--limit", "much"], 2, "--limit wants a size"),
    ],
)
def test_what_explain_cannot_compile_is_reported(explain, tmp_path, arguments, code, message):
    exit_code, out, err = explain(*arguments, "--db", tmp_path / "t.duckdb")
    assert (exit_code, out) == (code, "")
    assert message in err
    assert not (tmp_path / "t.duckdb").exists()


@pytest.mark.parametrize(
    ("target", "package", "device"),
    [
        ("tpu:v5e:2x2", "libtpu", "TPU v5e, of 16 GiB"),
        ("gpu:h100", "jax_cuda12_plugin", "H100 80GB, of 79.11 GiB"),
    ],
)
def test_explain_compiles_for_hardware_that_is_not_here(
    explain, monkeypatch, tmp_path, target, package, device
):
    import importlib.util

    options = (SPEC, "--args", "LAYERS, BATCH", "--target", target, "--db", tmp_path / "t")
    if importlib.util.find_spec(package) is None:
        code, _, err = explain(*options)
        assert code == 1
        assert "pip install" in err
        return
    # As most users have it: JAX looks for devices of all kinds, and finds none.
    monkeypatch.setenv("JAX_PLATFORMS", "")
    code, out, err = explain(*options)
    assert code == 0, err
    assert f"of run layers@{target}" in out
    assert device in out


TOO_LARGE = """
import jax.numpy as jnp

def step(q, k):
    p = jnp.einsum("qhd,khd->hqk", q, k)
    return jnp.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), k)
"""


def test_a_program_too_large_for_its_target_is_explained(explain, tmp_path):
    pytest.importorskip("libtpu", reason="this Python has no libtpu")
    (tmp_path / "attention.py").write_text(TOO_LARGE)
    spec, shape = f"{tmp_path / 'attention.py'}:step", "f32[32768,16,128]"
    code, out, err = explain(
        spec, "--args", f"{shape}, k={shape}", "--target", "v5litepod-4", "--db", tmp_path / "t"
    )
    assert code == 1, err
    assert "it does not fit" in out and "attention.py:" in out
    notes = err.splitlines()
    assert "exceeds available HBM (15.75G)" in notes[-1] and len(notes) < 3


def test_several_targets_give_a_table(explain, tmp_path):
    pytest.importorskip("libtpu", reason="this Python has no libtpu")
    targets = ["--target", "cpu", "--target", "v6e"]
    code, out, err = explain(
        SPEC, "--args", "LAYERS, BATCH", *targets, "--format", "json", "--db", tmp_path / "t"
    )
    assert code == 0, err
    rows = json.loads(out)
    assert [(row["device"], row["outcome"]) for row in rows] == [
        ("cpu", "compiled"),
        ("TPU v6 lite", "compiled"),
    ]
    assert all(row["need_bytes"] >= row["peak_bytes"] > 0 for row in rows)


AHEAD = """
import sys, jax, bufdb
from bufdb.capture.child import lowered
from bufdb.capture.target import target

sys.path.insert(0, sys.argv[2])
import loops

db, tpu = bufdb.connect(sys.argv[1]), target("tpu:v5e:2x2")
for name in ("layers", "decode"):
    function, *inputs = loops.PROGRAMS[name]
    stage = lowered(function, inputs, {}, tpu)
    db.ingest(stage, run="text")
    db.ingest(stage.compile(), run="compiled")
"""


def test_a_function_compiled_for_a_tpu_holds_what_its_dump_says(tmp_path):
    pytest.importorskip("libtpu", reason="this Python has no libtpu")
    run("-c", AHEAD, tmp_path / "t.duckdb", ROOT / "data" / "model")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as con:
        platforms = "SELECT run_name, platform, count(*) FROM modules GROUP BY ALL ORDER BY ALL"
        assert con.execute(platforms).fetchall() == [("compiled", "tpu", 2), ("text", "tpu", 2)]
        con.execute("UPDATE modules SET cl_number = NULL")  # only names of dump files have it
        # The text of a dump lacks backend_config, and so what the compiler estimates.
        con.execute("UPDATE instruction_costs SET estimated_cycles = NULL")
        con.execute("DELETE FROM instruction_costs WHERE operation_count IS NULL")
        # The other names of calls are in the text before optimizations alone.
        con.execute("DELETE FROM instructions WHERE NOT regexp_matches(text, 'op_name=.*/')")
        assert differences(con, "text", "compiled") == []


MESH = """
import functools, json, jax, jax.numpy as jnp, bufdb
from bufdb.errors import BufdbError
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

def array(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*spec)))

@functools.partial(jax.jit, static_argnums=2)
def f(w, x, double):
    return jnp.tanh(x @ w) * (2 if double else 1)

def peak(w, x):
    return bufdb.explain(f, w, x, True, target="tpu:v5e:2x2").data["peak"]["peak_bytes"]

def refused(*args):
    try:
        peak(*args)
    except BufdbError as error:
        return str(error)

four, many = AbstractMesh((4,), ("d",)), AbstractMesh((16,), ("d",))
whole = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((1024, 1024), (64, 1024))]
print(json.dumps([
    peak(*whole),
    peak(array(four, (1024, 1024), None, "d"), whole[1]),
    refused(array(many, (1024, 1024), None, "d"), whole[1]),
    refused(1, 2),
]))
"""


KERNEL = """
import sys, json, jax, jax.numpy as jnp, bufdb
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def kernel(x, y, scratch):
    scratch[...] = jnp.broadcast_to(x[:1, :1], scratch.shape)
    def body(step, total):
        scratch[pl.ds(8 * step, 8), :] = total
        return total + scratch[pl.ds(8 * (9 - step), 8), :]
    y[...] = jax.lax.fori_loop(0, 10, body, x[...])

def answer(rows, limit):
    def greedy(x):
        params = pltpu.CompilerParams(vmem_limit_bytes=limit and limit << 20)
        memory = [pltpu.VMEM((rows, 128), jnp.float32)]
        return pl.pallas_call(kernel, out_shape=x, scratch_shapes=memory, compiler_params=params)(x)
    result = bufdb.explain(greedy, jax.ShapeDtypeStruct((8, 128), "float32"), target="tpu:v5e:2x2")
    columns = "held_bytes, instruction_name, op_name, source"
    peaks = result.db.query("peak", color="vmem").project(columns)
    problems = result.db.query("diagnostics").filter("severity IN ('error', 'data_loss')")
    return result.text, result.notes, peaks.fetchall(), len(problems)

print(json.dumps([answer(40_000, 8), answer(400_000, None), answer(40_000, 64)]))
"""


def test_a_kernel_with_too_much_scratch_has_its_line():
    pytest.importorskip("libtpu", reason="this Python has no libtpu")
    limited, large, fits = json.loads(run("-c", KERNEL, TPU_SKIP_MDS_QUERY="1"))
    above = KERNEL[: KERNEL.index("return pl.pallas_call")].count("\n")
    named = ["greedy.1", "jit(greedy)/pallas_call", f"<string>:{above + 1}"]
    assert f"19.53 MiB needed by %greedy.1 (custom-call, f32[8,128], {named[1]}" in limited[0]
    assert "8.00 MiB of vmem available: 11.53 MiB too much" in limited[0].replace("\n ", "")
    assert limited[2] == [[20478689, *named]]
    assert "128.00 MiB of vmem available: 67.31 MiB too much" in large[0].replace("\n ", "")
    assert large[2] == [[204_800_000, *named]]
    assert all("XLA gave up" in " ".join(result[1]) for result in (limited, large))
    assert fits[1:3] == [[], []] and "64.0 MiB vmem" in fits[0]
    assert [result[3] for result in (limited, large, fits)] == [0, 0, 0]


def test_arguments_keep_their_mesh_on_a_target():
    pytest.importorskip("libtpu", reason="this Python has no libtpu")
    whole, sharded, many, nothing = json.loads(run("-c", MESH, TPU_SKIP_MDS_QUERY="1"))
    mib = 1 << 20
    assert 4 * mib < whole < 5 * mib
    assert 1 * mib < sharded < 2 * mib
    assert "sharded over 16 devices, tpu:v5e:2x2 has 4" in many
    assert "needs an array or a ShapeDtypeStruct" in nothing
