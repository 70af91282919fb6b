"""Scope paths are written in Python and in SQL; both must agree."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bufdb.read import jax_names
from bufdb.rows.op_names import op_path, strip_op_path

PIECES = [
    "jit(f)", "pjit(g)", "jvp(jit(h))", "transpose(jvp(Net))", "jvp(Net)", "jvp()",
    "transpose(jvp())",
    "while", "body", "cond", "branch_12_fun", "checkpoint", "rematted_computation", "remat(core)",
    "closed_call", "shard_map", "jit(main)", "vmap(while)", "layer_0", "dot_general",
    "add[a=1 b=x/y]", "(a:b)", "x;y", "opt_state[0]", ".mu['w']", "params['a'].b",
    "", "/", "\n", "$", "(",
]  # fmt: skip


def agree(con, names):
    rows = con.execute(
        "SELECT name, op_path(name), strip_op_path(op_path(name)) FROM (SELECT unnest(?) AS name)",
        [names],
    ).fetchall()
    for name, path, stripped in rows:
        assert (op_path(name), strip_op_path(op_path(name))) == (path, stripped), name


def test_op_names_of_real_dumps(demo):
    names = demo.execute("SELECT DISTINCT op_name FROM instructions WHERE op_name IS NOT NULL")
    agree(demo, [name for (name,) in names.fetchall()])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=7), min_size=50, max_size=50))
def test_made_up_op_names(demo, paths):
    agree(demo, ["/".join(path) for path in paths])


def test_python_and_sql_know_the_same_names_of_jax(demo):
    names = {
        "transforms": jax_names.TRANSFORMS,
        "functions": jax_names.FUNCTIONS,
        "words": (
            jax_names.LOOP,
            *jax_names.CHECKPOINTS,
            *jax_names.SCAN_STEPS,
            *jax_names.CALLS,
        ),
        "loop": [jax_names.LOOP],
        "loop_parts": jax_names.LOOP_PARTS,
        "choice": [jax_names.CHOICE],
        "branch": [jax_names.BRANCH],
        "recomputed": [jax_names.RECOMPUTED],
        "gradient": [jax_names.GRADIENT.replace("(", "[(]")],
        "backward": [jax_names.BACKWARD.replace("(", "[(]")],
    }
    for kind, expected in names.items():
        (text,) = demo.execute("SELECT jax_names(?)", [kind]).fetchone()
        assert text.split("|") == list(expected), kind


def test_passes_of_a_gradient_are_known_by_the_same_names(demo):
    for name in ("jit(f)/jvp(Net)/dot", "jit(f)/transpose(jvp(Net))/dot", "jit(f)/dot"):
        row = demo.execute("SELECT is_forward($n), is_backward($n)", {"n": name}).fetchone()
        assert row == (jax_names.is_forward(name.encode()), jax_names.is_backward(name.encode()))


def test_patterns_of_scope_paths_have_these_names(demo):
    """They have them in their text, since DuckDB would join it again for each use."""
    sql = "SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'strip_op_path'"
    (text,) = demo.execute(sql).fetchone()
    kinds = ("transforms", "functions", "words", "loop", "loop_parts", "choice", "branch")
    for kind in (*kinds, "gradient", "backward"):
        (names,) = demo.execute("SELECT jax_names(?)", [kind]).fetchone()
        assert names in text, kind
