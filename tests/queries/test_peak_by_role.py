import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-role", "run_name")


def argument(module, index, size, name, kind="parameter"):
    module.allocation(index, kind, size, parameter_number=index, parameter_shape_index="{}")
    module.value(index, index, 0, size, op_name=name, opcode="parameter")


@pytest.mark.slow
def test_roles_by_name_and_by_phase_add_up_to_the_peak(con):
    module = Module(con, 1)
    argument(module, 0, 10, "params['w']")
    argument(module, 1, 20, "opt_state[0].mu['w']", "donated_parameter")
    argument(module, 2, 30, "a")
    module.allocation(3, "temp", 100)
    module.value(3, 3, 0, 7, op_name="jit(f)/jvp(N)/dot", opcode="dot")
    module.value(4, 3, 10, 8, op_name="jit(f)/transpose(jvp(N))/dot", opcode="dot")
    module.value(5, 3, 20, 9, op_name="jit(f)/mul", opcode="multiply")
    module.value(6, 3, 30, 6, opcode="copy")
    module.allocation(7, "constant", 4)
    module.value(7, 7, 0, 4, opcode="constant", op_name="jit(f)/jvp(N)/dot")
    module.allocation(8, "output", 2)
    module.value(8, 8, 0, 2, opcode="dot", op_name="jit(f)/jvp(N)/out")
    module.close()
    holds(con, "peak-by-role", """
        peak_bytes | held_bytes | held_ratio           | value_count | role
        96         | 30         | 0.3125               | 1           | NULL
        96         | 20         | 0.20833333333333334  | 1           | optimizer state
        96         | 10         | 0.10416666666666667  | 1           | weights
        96         | 9          | 0.09375              | 1           | optimizer step
        96         | 8          | 0.08333333333333333  | 1           | gradients
        96         | 7          | 0.07291666666666667  | 1           | activations
        96         | 6          | 0.0625               | 1           | NULL
        96         | 4          | 0.041666666666666664 | 1           | constants
        96         | 2          | 0.020833333333333332 | 1           | NULL

        allocation_kind   | sureness
        parameter         | NULL
        donated_parameter | likely
        parameter         | likely
        temp              | possible
        temp              | possible
        temp              | possible
        temp              | NULL
        constant          | likely
        output            | NULL
    """)  # fmt: skip
    assert len(answer(con, "peak-by-role", top_n=2)) == 2


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("params['layer']['kernel']", "weights"),
        ("variables['params']['Conv_0']['bias']", "weights"),
        ("variables['batch_stats']['BatchNorm_0']['var']", "model state"),
        ("opt_state[0].nu['params']['kernel']", "optimizer state"),
        ("state.opt_state[1].count", "optimizer state"),
        ("mu['w']", "optimizer state"),
        ("state['nu']['w']", "optimizer state"),
        ("state.mu", "optimizer state"),
        ("menu['w']", None),
        ("momentum['w0']", "optimizer state"),
        ("grads['params']['w']", "gradients"),
        ("batch['x']", "inputs"),
        ("x", "inputs"),
        ("args[0]", None),
    ],
)
def test_names_of_arguments(con, name, role):
    module = Module(con, 1)
    argument(module, 0, 10, name)
    module.close()
    assert [row["role"] for row in answer(con, "peak-by-role")] == [role]


def test_rules_for_arguments_are_not_for_operations(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 10)
    module.value(0, 0, 0, 10, op_name="params_scope/dot", opcode="dot")
    module.close()
    holds(con, "peak-by-role", """
        role
        NULL
    """)  # fmt: skip


@pytest.mark.slow
def test_a_carried_argument_keeps_its_role(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 10)
    module.value(0, 0, 0, 10, op_name="jit(f)/jvp()/while", opcode="copy")
    insert(con, "value_origins", module_id=1, value_id=0, origin_kind="carried",
           opcode="parameter", op_name="params['w']")  # fmt: skip
    module.close()
    holds(con, "peak-by-role", """
        role
        weights
    """)  # fmt: skip
    holds(con, "peak-by-role", """
        role
        activations
    """, loops="carrier")  # fmt: skip


@pytest.mark.slow
def test_what_has_no_name_is_what_it_is_for(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 20)
    module.value(0, 0, 0, 10, (0, 1), opcode="copy", program_order=0)
    module.value(1, 0, 10, 10, (1, 2), name="d", op_name="jit(f)/jvp()/dot", opcode="dot",
                 program_order=1)  # fmt: skip
    module.use(0, "d")
    module.close()
    holds(con, "peak-by-role", """
        value_count | role
        2           | activations
    """)  # fmt: skip
    assert {row["role"] for row in answer(con, "peak-by-role", unnamed="none")} == {
        "activations",
        None,
    }


def test_a_rule_of_the_user_comes_first(con):
    con.execute("INSERT INTO role_rules VALUES (-1, 'operation', '*/attention/*', 'attention')")
    con.execute("INSERT INTO role_rules VALUES (-2, 'parameter', 'params*', NULL)")
    module = Module(con, 1)
    argument(module, 0, 10, "params['w']")
    module.allocation(1, "temp", 9)
    module.value(1, 1, 0, 9, op_name="jit(f)/jvp()/attention/dot", opcode="dot")
    module.close()
    holds(con, "peak-by-role", """
        role      | sureness
        NULL      | NULL
        attention | stated
    """)  # fmt: skip


def test_ties_by_role_and_kind(con):
    module = Module(con, 1)
    for index, name in enumerate(("params", "opt_state", "a")):
        argument(module, index, 10, name)
    argument(module, 3, 10, "params['b']", "donated_parameter")
    module.close()
    holds(con, "peak-by-role", """
        role            | allocation_kind
        optimizer state | parameter
        weights         | donated_parameter
        weights         | parameter
        NULL            | parameter
    """)  # fmt: skip
