import pytest
from small_db import Module
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-op", "run_name")


NAMES = (
    "jit(step)/transpose(jvp(Net))/layer_0/dot_general",
    "jit(step)/jvp(Net)/layer_1/dot_general",
    "jit(step)/while/body/closed_call/tanh",
    "opt_state[0].mu['w']",
    None,
)


def one_module(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    for value_id, op_name in enumerate(NAMES):
        module.value(value_id, 0, offset=20 * value_id, size=20, op_name=op_name)
    module.close()


def test_scopes_without_what_jax_adds(con):
    one_module(con)
    holds(con, "peak-by-op", """
        held_bytes | held_ratio | value_count | op_path
        20         | 0.2        | 1           | (temp)
        20         | 0.2        | 1           | Net/layer_0/dot_general
        20         | 0.2        | 1           | Net/layer_1/dot_general
        20         | 0.2        | 1           | opt_state/0/mu/w
        20         | 0.2        | 1           | tanh
    """)  # fmt: skip


@pytest.mark.slow
def test_depth_and_merged_numbers(con):
    one_module(con)
    holds(con, "peak-by-op", """
        held_bytes | op_path
        40         | Net/layer_*
        20         | (temp)
        20         | opt_state/*
        20         | tanh
    """, depth=2, merge_numbers="true")  # fmt: skip
    holds(con, "peak-by-op", """
        held_bytes | op_path
        40         | Net
        20         | (temp)
        20         | opt_state
        20         | tanh
    """, depth=1)  # fmt: skip


def test_wrappers_are_kept_on_request(con):
    one_module(con)
    holds(con, "peak-by-op", """
        op_path
        (temp)
        jit(step)/jvp(Net)
        jit(step)/transpose(jvp(Net))
        jit(step)/while
        opt_state/0
    """, wrappers="keep", depth=2)  # fmt: skip


@pytest.mark.parametrize(
    ("op_name", "path", "stripped", "functions"),
    [
        (
            "jit(f)/jit(main)/transpose(jvp(while))/body/remat/dot_general[dims=(((1,), (1,)))]",
            "jit(f)/transpose(jvp(while))/body/remat/dot_general",
            "dot_general",
            "f",
        ),
        (
            "jit(f)/transpose(jvp(Net))/jvp(Net)/checkpoint/rematted_computation/norm_0/div",
            "jit(f)/transpose(jvp(Net))/jvp(Net)/checkpoint/rematted_computation/norm_0/div",
            "Net/norm_0/div",
            "f",
        ),
        ("jit(f)/vmap(transpose(jvp()))/mul;jit(f)/x", "jit(f)/vmap(transpose(jvp()))/mul",
         "mul", "f"),
        ("jit(f)/(jvp()/reduce_sum:transpose(jvp())/dot)", "jit(f)/jvp()/reduce_sum",
         "reduce_sum", "f"),
        ("jit(f)/cond/branch_1_fun/jit(_where)/select_n",
         "jit(f)/cond/branch_1_fun/jit(_where)/select_n", "select_n", "f/_where"),
        ("jit(f)/transpose(jvp(jit(take)))/a/scatter-add",
         "jit(f)/transpose(jvp(jit(take)))/a/scatter-add", "a/scatter-add", "f/take"),
        ("jit(f)/a/bqhd,bkhd->bhqk/while", "jit(f)/a/bqhd,bkhd->bhqk/while",
         "a/bqhd,bkhd->bhqk/while", "f"),
        ("jit(f)/body/while/body/while", "jit(f)/body/while/body/while", "body/while", "f"),
        ("jit(f)/jit(main)/shard_map[mesh=Mesh(ids=array([0, 1]), names=('i',))]",
         "jit(f)/shard_map", "shard_map", "f"),
        ("jit(<lambda>)/add", "jit(<lambda>)/add", "add", "<lambda>"),
        ("args[0]", "args/0", "args/0", None),
        ("params['a/b'].w[-1]", "params/a/b/w/-1", "params/a/b/w/-1", None),
        ("gradient_tape/MatMul", "gradient_tape/MatMul", "gradient_tape/MatMul", None),
        ("reduce_sum[axes=(0,)]", "reduce_sum", "reduce_sum", None),
        ("", "", "", None),
        (None, None, None, None),
    ],
)  # fmt: skip
def test_op_names_of_every_jax(con, op_name, path, stripped, functions):
    row = con.execute(
        "SELECT op_path($1), strip_op_path(op_path($1)), jit_path($1)", [op_name]
    ).fetchone()
    assert row == (path, stripped, functions)


def made_by_xla(con):
    """A convert, used by a copy, used by a dot of a layer; and one used too far away."""
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=40, name="convert")
    module.value(2, 0, offset=40, size=20, name="copy", program_order=1)
    module.value(3, 0, offset=60, size=10, name="dot", program_order=2,
                 op_name="jit(f)/jvp(Net)/layer_0/dot")  # fmt: skip
    module.use(1, "copy")
    module.use(2, "dot")
    for number in range(9):
        module.value(10 + number, 0, offset=70 + number, size=1, name=f"far.{number}",
                     program_order=10 + number)  # fmt: skip
        module.use(10 + number, f"far.{number + 1}" if number < 8 else "dot")
    module.close()


@pytest.mark.slow
def test_what_xla_made_is_named_for_its_first_named_use(con):
    made_by_xla(con)
    holds(con, "peak-by-op", """
        held_bytes | held_ratio           | value_count | op_path
        68         | 0.8607594936708861   | 10          | for Net/layer_0/dot
        10         | 0.12658227848101267  | 1           | Net/layer_0/dot
        1          | 0.012658227848101266 | 1           | (temp)
    """)  # fmt: skip
    holds(con, "peak-by-op", """
        op_path
        for Net/layer_*
        Net/layer_*
        (temp)
    """, depth=2, merge_numbers="true")  # fmt: skip
    holds(con, "peak-by-op", """
        op_path
        for jit(f)/jvp(Net)
        jit(f)/jvp(Net)
        (temp)
    """, wrappers="keep", depth=2)  # fmt: skip


def test_unnamed_none_counts_it_by_kind_of_allocation(con):
    made_by_xla(con)
    holds(con, "peak-by-op", """
        held_bytes | held_ratio          | value_count | op_path
        69         | 0.8734177215189873  | 11          | (temp)
        10         | 0.12658227848101267 | 1           | Net/layer_0/dot
    """, unnamed="none")  # fmt: skip


def test_a_use_inside_a_called_computation_does_not_count(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 20)
    module.value(1, 0, offset=0, size=10, name="copy")
    module.value(2, 0, offset=10, size=1, name="inner", op_name="inner")
    module.use(1, "inner")
    module.close()
    holds(con, "peak-by-op", """
        op_path
        (temp)
        inner
    """)  # fmt: skip
