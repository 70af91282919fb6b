import pytest
from small_db import Module
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-category", "run_name")


def test_kinds_and_phases_ties_by_kind_then_phase(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 10)
    module.allocation(2, "donated_parameter", 10)
    module.allocation(3, "thread_local", 1000)
    names = ("jit(f)/jvp(N)/dot", "jit(f)/jvp(N)/tanh", "jit(f)/transpose(jvp(N))/dot", None)
    for value_id, op_name in enumerate(names):
        module.value(value_id, 0, offset=10 * value_id, size=10, op_name=op_name)
    module.value(10, 1, offset=0, size=10, op_name="x")
    module.value(11, 2, offset=0, size=10, op_name="opt_state[0].mu")
    module.close()
    holds(con, "peak-by-category", """
        peak_bytes | held_bytes | held_ratio          | value_count | allocation_kind   | category
        60         | 20         | 0.3333333333333333  | 2           | temp              | forward
        60         | 10         | 0.16666666666666666 | 1           | donated_parameter | optimizer
        60         | 10         | 0.16666666666666666 | 1           | parameter         | NULL
        60         | 10         | 0.16666666666666666 | 1           | temp              | backward
        60         | 10         | 0.16666666666666666 | 1           | temp              | NULL
    """)  # fmt: skip


def category(con, op_name, *others):
    """Category of an op_name in a module that holds others too."""
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    for value_id, name in enumerate((op_name, *others)):
        module.value(value_id, 0, offset=value_id, size=1, op_name=name)
    row = con.execute("SELECT category FROM op_name_categories WHERE op_name = ?", [op_name])
    return (row.fetchone() or [None])[0]


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("jit(f)/transpose(jvp(N))/jvp(N)/checkpoint/rematted_computation/dot", "rematerialized"),
        ("jit(f)/transpose(jvp(N))/jvp(N)/checkpoint/dot", "backward"),
        ("jit(f)/jit(main)/transpose(jvp(while))/body/remat/tanh", "rematerialized"),
        ("jit(f)/jvp()/checkpoint/dot", "forward"),
        ("jit(f)/jvp()/transpose", "forward"),
        ("gradient_tape/MatMul", "backward"),
        ("state.opt_state[1].nu['w']", "optimizer"),
        ("params['w']", None),
        ("jit(f)/dot", "forward"),
        ("jit(f)/jit(main)/dot", "forward"),
    ],
)
def test_rules_that_come_with_bufdb(con, op_name, expected):
    assert category(con, op_name) == expected


def test_what_lies_outside_of_a_gradient(con):
    assert category(con, "jit(f)/mul", "jit(f)/transpose(jvp())/dot") == "optimizer"


def test_old_jax_does_not_tell_what_lies_outside_of_a_gradient(con):
    gradient = "jit(f)/jit(main)/transpose(jvp(while))/body/dot"
    assert category(con, "jit(f)/jit(main)/mul", gradient) is None


def test_a_rule_of_the_user_comes_first(con):
    con.execute("INSERT INTO op_categories VALUES (1, '*attention*', NULL, 'attention')")
    assert category(con, "jit(f)/jvp(N)/attention_0/dot") == "attention"
