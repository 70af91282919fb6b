"""Pairs of functions of two runs to compare, where the names do not match."""

import pytest
from small_db import Module, insert
from tables import holds


def module(con, module_id, run, function, parameters, result="f32[64]", size=0, **cells):
    """A module of the signature (parameters) -> result."""
    made = Module(con, module_id, run, function, **cells)
    for number, shape in enumerate(parameters):
        made.allocation(
            number,
            "parameter",
            16,
            parameter_number=number,
            parameter_shape=shape,
            parameter_shape_index="{}",
        )
    made.allocation(len(parameters), "output", 8 + size, output_shape=result)
    made.close()


def pairs(con, chosen="NULL"):
    """Return (base module, new module, rule) of each pair, in order."""
    return con.execute(
        "SELECT base_module_id, new_module_id, paired_by "
        f"FROM diff_pairs('a', 'b', {chosen}) ORDER BY ALL"
    ).fetchall()


APART = [(1, None, "only in base"), (None, 2, "only in new")]
WEIGHTS = ["f32[64,64]", "f32[64]", "f32[64,32]", "f32[32]"]
BATCH = ["f32[8,64]"]


def renamed(con, old, new, parameters, changed):
    """The rule by which one function of each run is paired."""
    module(con, 1, "a", old, parameters)
    module(con, 2, "b", new, changed)
    paired_rows = pairs(con)
    assert paired_rows == APART or [row[:2] for row in paired_rows] == [(1, 2)]
    return None if paired_rows == APART else paired_rows[0][2]


@pytest.mark.parametrize(
    ("old", "new", "parameters", "changed", "rule"),
    [
        # The same shapes, and so many that they are no coincidence.
        ("train", "update", [*WEIGHTS, *BATCH], [*WEIGHTS, *BATCH], "signature alone"),
        ("f", "g", BATCH, BATCH, None),
        ("f", "g", ["f32[]"] * 9, ["f32[]"] * 9, None),
        # Names that are alike need fewer.
        ("loss_fn", "loss_func", BATCH, BATCH, "signature alone"),
        ("_lambda_", "_lambda", [], [], "signature alone"),
        ("step", "train_step", WEIGHTS, [*WEIGHTS, "f32[7]"], "likeness"),
        ("step", "train_step", WEIGHTS, ["f32[1]", "f32[2]"], None),
        ("train_step", "eval_step", WEIGHTS, WEIGHTS[:3], None),
        # Words that say how a function is run are no part of its name.
        ("remat_f", "f_checkpoint", BATCH, BATCH, "signature alone"),
        ("f", "remat_f_sharded", WEIGHTS, [*WEIGHTS, "f32[7]"], "likeness"),
        ("remat", "checkpoint", BATCH, BATCH, "signature alone"),
        # Sharded, or for another batch: all dimensions divided by whole numbers.
        ("step", "sharded_step", ["f32[8,64]", "f32[64]"], ["f32[2,64]", "f32[32]"], "likeness"),
        ("step", "sharded_step", ["f32[8,64]", "f32[64]"], ["f32[3,64]", "f32[32]"], None),
        ("step", "sharded_step", ["f32[8,64]", "f32[64]"], ["f32[2,64]", "f32[128]"], None),
        ("step", "sharded_step", ["f32[8,64]", "f32[64]"], ["bf16[2,64]", "f32[32]"], None),
        ("step", "sharded_step", ["f32[8,64]", "f32[1]"], ["f32[2,64]", "f32[0]"], None),
        # Without a like name, many shapes that are nearly all the same.
        ("f", "g", WEIGHTS * 3, [*WEIGHTS * 3, "f32[7]"], "likeness"),
        ("f", "g", [*WEIGHTS * 3, "f32[8,64]"], [*WEIGHTS * 3, "f32[16,64]"], "likeness"),
        ("f", "g", WEIGHTS * 3, WEIGHTS * 2, None),
    ],
)
def test_a_function_under_another_name(con, old, new, parameters, changed, rule):
    assert renamed(con, old, new, parameters, changed) == rule


def test_the_rule_is_the_same_both_ways(con):
    assert renamed(con, "step", "sharded_step", ["f32[8,64]"], ["f32[2,64]"]) == "likeness"
    back = con.execute("SELECT paired_by FROM diff_pairs('b', 'a')").fetchall()
    assert back == [("likeness",)]


def test_a_name_that_both_sides_have_is_no_new_name(con):
    module(con, 1, "a", "train", WEIGHTS)
    module(con, 2, "b", "train", BATCH)
    module(con, 3, "b", "trainer", WEIGHTS)
    assert pairs(con) == [(1, 2, "name"), (None, 3, "only in new")]


@pytest.mark.parametrize(("more", "other"), [([], []), (["f32[7]"], ["f32[7]", "f32[9]"])])
def test_of_two_that_are_nearly_as_near_none_is_taken(con, more, other):
    module(con, 1, "a", "train_step", WEIGHTS)
    module(con, 2, "b", "train_step_a", [*WEIGHTS, *more])
    module(con, 3, "b", "train_step_b", [*WEIGHTS, *other])
    assert {row[2] for row in pairs(con)} == {"only in base", "only in new"}


def test_names_tell_functions_of_one_signature_apart(con):
    for number, name in enumerate(("encode", "decode"), 1):
        module(con, number, "a", name, WEIGHTS)
        module(con, number + 2, "b", f"{name}_v2", WEIGHTS)
    assert pairs(con) == [(1, 3, "signature alone"), (2, 4, "signature alone")]


@pytest.mark.slow
def test_all_compilations_go_with_a_new_name(con):
    for number, batch in enumerate((8, 16)):
        module(con, number, "a", "step", [*WEIGHTS, f"f32[{batch},64]"], size=batch)
        module(con, number + 2, "b", "my_step", [*WEIGHTS, f"f32[{batch},64]"], size=batch)
    module(con, 4, "b", "my_step", BATCH)
    assert pairs(con) == [
        (0, 2, "signature alone"), (1, 3, "signature alone"), (None, 4, "only in new"),
    ]  # fmt: skip


def torch(con, module_id, run, number, parameters, **cells):
    name = f"SyncTensorsGraph.{number}"
    key = f"module_{number:04}.{name}.cpu_after_optimizations"
    module(con, module_id, run, None, parameters, module_name=name, module_key=key, **cells)


def test_programs_of_torch_xla_pair_by_their_shapes(con):
    torch(con, 1, "a", 7, WEIGHTS)
    torch(con, 2, "a", 9, BATCH)
    torch(con, 3, "b", 7, BATCH)  # the number is the other program's
    torch(con, 4, "b", 11, WEIGHTS)
    assert pairs(con) == [(1, 4, "signature"), (2, 3, "signature")]


def test_programs_of_torch_xla_of_one_signature_pair_by_size(con):
    for module_id, run, number, size in ((1, "a", 1, 5), (2, "a", 2, 9), (3, "b", 3, 8)):
        torch(con, module_id, run, number, WEIGHTS, size=size)
    assert pairs(con) == [(1, None, "only in base"), (2, 3, "signature, rank of size")]


@pytest.mark.slow
def test_torch_xla_programs_pair_by_shape_ratios(con):
    torch(con, 1, "a", 7, BATCH)
    torch(con, 2, "b", 7, ["f32[16,64]"])
    assert {row[2] for row in pairs(con)} == {"only in base", "only in new"}
    torch(con, 3, "a", 8, [*WEIGHTS * 3, "f32[8,64]"])
    torch(con, 4, "b", 9, [*WEIGHTS * 3, "f32[16,64]"])
    assert (3, 4, "likeness") in pairs(con)


@pytest.mark.slow
def test_what_is_asked_for_is_paired(con):
    module(con, 1, "a", "f", BATCH)
    module(con, 2, "b", "g", WEIGHTS)
    module(con, 3, "b", "f", BATCH)
    assert pairs(con, "'f=g'") == [(1, 2, "asked"), (None, 3, "only in new")]
    assert pairs(con, "'x=y , m1=m2'") == [(1, 2, "asked"), (None, 3, "only in new")]
    assert pairs(con, "'f=x'") == pairs(con) == [(1, 3, "signature"), (None, 2, "only in new")]
    holds(con, "diff-modules", """
        function_name | base_function_name | paired_by
        g             | f                  | asked
        f             | NULL               | only in new
    """, base="a", new="b", figure="peak", pair="f=g")  # fmt: skip


def test_a_name_that_is_asked_for_may_have_an_equals_sign(con):
    module(con, 1, "a", "f", BATCH, module_key="batch=8/m")
    module(con, 2, "b", "g", WEIGHTS)
    assert pairs(con, "'batch=8/m=g'") == [(1, 2, "asked")]


def test_chosen_compilations_pair_by_name(con):
    module(con, 1, "a", "f", BATCH)
    module(con, 2, "a", "f", WEIGHTS, size=9)
    module(con, 3, "b", "g", WEIGHTS)
    module(con, 4, "b", "g", WEIGHTS[:2])
    assert pairs(con, "'f=g'") == [(1, 4, "asked"), (2, 3, "asked")]


def test_a_new_name_is_looked_for_among_runs_of_the_same_labels(con):
    for module_id, (run, function) in enumerate(
        [("a8", "step"), ("a16", "step"), ("b8", "my_step"), ("b16", "my_step")]
    ):
        module(con, module_id, run, function, WEIGHTS)
        insert(con, "run_labels", run_name=run, label="batch", label_value=run[1:])
        insert(con, "run_labels", run_name=run, label="side", label_value=run[0])
    rows = con.execute(
        "SELECT base_run_name, new_run_name, paired_by FROM diff_pairs('side=a', 'side=b') "
        "ORDER BY ALL"
    ).fetchall()
    assert rows == [("a16", "b16", "signature alone"), ("a8", "b8", "signature alone")]
