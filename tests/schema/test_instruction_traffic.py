"""Bytes that instructions read and write in one run, worked out by hand."""

import pytest
from small_db import Module, insert


@pytest.fixture
def module(con):
    module = Module(con, 1, has_hlo_text=True, has_used_values=True)
    module.allocation(0, "temp", 9999)
    module.allocation(1, "thread_local", 9999, is_thread_local=True)
    module.allocation(2, "temp", 9999, color=5)
    return module


def traffic(con):
    query = "SELECT * EXCLUDE (module_id) FROM instruction_traffic ORDER BY instruction_name"
    return {name: tuple(cells) for name, *cells in con.execute(query).fetchall()}


def value(module, value_id, name, opcode, size=100, allocation=0, **cells):
    module.value(value_id, allocation, 0, size, name=name, opcode=opcode, logical=size, **cells)


def executed(con, name, count, spared=0, why=None):
    insert(con, "instruction_executions", module_id=1, instruction_name=name,
           execution_count=count, spared_bytes=spared, unknown_reason=why)  # fmt: skip


def test_operands_and_results_add_up(con, module):
    value(module, 1, "p", "parameter", 40)
    value(module, 2, "made", "fusion", 100)
    module.use(1, "made")
    module.use(1, "made", 1)
    # A parameter moves nothing by itself; both operands count, though they are one array.
    assert traffic(con) == {"made": (1, 180, None)}


def test_loops_multiply_and_parts_are_spared(con, module):
    value(module, 1, "p", "parameter", 40)
    value(module, 2, "update", "dynamic-update-slice", 40)
    module.use(1, "update")
    executed(con, "update", 10, spared=70)
    assert traffic(con) == {"update": (10, 100, None)}


def test_what_does_not_say_how_often_it_runs_is_unknown(con, module):
    value(module, 1, "made", "add", 40)
    executed(con, "made", None, why="while.1 does not say how often it loops")
    assert traffic(con) == {"made": (None, None, "while.1 does not say how often it loops")}


def test_a_shape_that_is_not_understood_is_unknown(con, module):
    value(module, 1, "made", "add", 40)
    con.execute('UPDATE "values" SET logical_bytes = NULL')
    assert traffic(con) == {"made": (1, None, "the size of one of its shapes is unknown")}


@pytest.mark.parametrize(
    "opcode",
    ["parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
     "conditional", "copy-done", "async-start", "fusion-start"],
)  # fmt: skip
def test_what_moves_nothing_by_itself_does_not_count(con, module, opcode):
    value(module, 1, "one", opcode, 40)
    assert traffic(con) == {}


def test_only_arrays_in_device_memory_count(con, module):
    value(module, 1, "host", "add", 40, allocation=2)
    value(module, 2, "local", "add", 40, allocation=1)
    value(module, 3, "pair", "add", 16, shape="(f32[2], f32[2])")
    value(module, 4, "begun", "copy-start", 40)
    assert traffic(con) == {"begun": (1, 40, None)}


def test_a_module_without_its_text_has_no_rows(con, module):
    value(module, 1, "made", "add", 40)
    con.execute("UPDATE modules SET has_hlo_text = FALSE")
    assert traffic(con) == {}
