import pytest
from ingesting import ingest_into
from places import ROOT
from shared_dumps import DUMPS, needs_dumps
from small_db import Module, answer, insert
from tables import holds

ARRAY, SCALAR = "f32[8]{0}", "s32[]"


def place(con, value_id, name, index="{}"):
    con.execute(
        "INSERT INTO positions (module_id, value_id, position_ordinal, instruction_name, "
        "shape_index, is_defining) SELECT 1, ?, count(*), ?, ?, FALSE FROM positions",
        [value_id, name, index],
    )


def test_nothing_in_an_empty_database(con):
    holds(con, "host-memory", "run_name")


@pytest.fixture
def offloading(con):
    """An argument on the host that is read, and an array that goes there and comes back."""
    module = Module(con, 1, function_name="step", platform="gpu")
    module.allocation(0, "parameter", 40, color=5, parameter_number=0)
    module.allocation(1, "temp", 32, color=5)
    module.allocation(2, "temp", 500)
    line = {"source_file": "model.py", "source_line": 7}
    module.value(0, 0, 0, 40, name="arg", shape=ARRAY, opcode="parameter", op_name="m")
    module.value(1, 2, 0, 40, name="in", shape=ARRAY, opcode="copy-start", shape_index="{0}")
    module.value(2, 2, 100, 32, name="a", shape=ARRAY, opcode="add")
    module.value(3, 1, 0, 32, name="out", shape=ARRAY, opcode="copy-start", shape_index="{0}",
                 op_name="jit(step)/dot", **line)  # fmt: skip
    module.value(4, 2, 200, 4, name="i", shape=SCALAR, opcode="add")
    module.value(5, 2, 300, 8, name="back", shape="f32[2]{0}", opcode="dynamic-slice")
    module.value(6, 2, 310, 24, name="start", shape="((f32[8]), f32[2])", opcode="fusion-start")
    for value_id, name, index in [
        (1, "in", "{0}"), (0, "in", "{1}"), (3, "out", "{0}"), (2, "out", "{1}"), (5, "back", "{}"),
        (3, "start", "{0,0}"), (4, "start", "{0,1}"), (5, "start", "{1}"),
    ]:  # fmt: skip
        place(con, value_id, name, index)
    for value_id, by in [(0, "in"), (2, "out"), (3, "start"), (4, "start"), (3, "back")]:
        module.use(value_id, by)
    module.close()
    return module


@pytest.mark.slow
def test_what_the_host_holds_and_what_moves_it(con, offloading):
    holds(con, "host-memory", """
        run_name | function_name | color | peak_bytes | held_bytes | held_ratio
        r        | step          | 5     | 72         | 40         | 0.5555555555555556
        r        | step          | 5     | 72         | 32         | 0.4444444444444444

        value_count | allocation_kind | to_host_bytes | to_host_count | from_host_bytes
        1           | parameter       | 0             | 0             | 40
        1           | temp            | 32            | 1             | 8

        from_host_count | shape     | op_name       | source
        1               | f32[8]{0} | m             | NULL
        1               | f32[8]{0} | jit(step)/dot | model.py:7
    """)  # fmt: skip
    holds(con, "host-memory", "run_name", color=0)
    holds(con, "host-memory", """
        held_bytes
        40
    """, top_n=1)  # fmt: skip


def test_each_move_by_its_instruction(con, offloading):
    moves = con.execute(
        "SELECT instruction_name, is_to_host, host_value_id, device_value_id, size_bytes "
        "FROM host_transfers ORDER BY ALL"
    ).fetchall()
    assert moves == [("in", False, 0, 1, 40), ("out", True, 3, 2, 32), ("start", False, 3, 5, 8)]


def test_on_a_cpu_all_memory_is_that_of_the_host(con):
    module = Module(con, 1, platform="cpu")
    module.allocation(0, "temp", 8)
    module.value(1, 0, 0, 8, shape=ARRAY, opcode="copy")
    place(con, 1, "v1")
    module.use(1, "v1")
    module.close()
    holds(con, "host-memory", "run_name")
    assert con.execute("FROM host_transfers").fetchall() == []


def test_without_uses_moved_bytes_are_unknown(con):
    module = Module(con, 1, platform="tpu", has_used_values=False)
    module.allocation(0, "temp", 8, color=5)
    module.value(1, 0, 0, 8, shape=ARRAY)
    module.close()
    (row,) = answer(con, "host-memory")
    assert row[4:12] == (8, 1.0, 1, "temp", None, None, None, None)


def test_values_of_one_line_and_shape_are_one_row_ties_by_run(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name, platform="gpu")
        module.allocation(0, "temp", 16, color=5)
        for value_id in (1, 2):
            module.value(value_id, 0, 8 * value_id - 8, 8, shape=ARRAY, op_name="x")
        module.close()
    holds(con, "host-memory", """
        run_name | held_bytes | value_count
        a        | 16         | 2
        b        | 16         | 2
    """)  # fmt: skip


def test_spaces_of_the_host_are_those_of_the_table(con):
    insert(con, "memory_spaces", platform="gpu", color=7, memory_space_name="host")
    module = Module(con, 1, platform="gpu")
    module.allocation(0, "temp", 16, color=7)
    module.value(1, 0, 0, 8, shape=ARRAY)
    module.close()
    holds(con, "host-memory", """
        color
        7
    """)  # fmt: skip
    con.execute("DELETE FROM memory_spaces WHERE color = 7")


def test_the_stack_that_the_sharded_program_offloads(con):
    """data/model/sharded.py: four layers of 16 x 32 x 128, each moved there and back by itself."""
    ingest_into(con, ROOT / "data/sharded/gpu")
    whole, layer = 4 * 16 * 32 * 128 * 4, 16 * 32 * 128 * 4
    ((*row, source),) = answer(con, "host-memory")
    assert row[3:12] == [whole, whole, 1.0, 1, "temp", layer, 1, layer, 1]
    assert source == "saved /home/user/model/sharded.py:33"
    assert (
        "inner = checkpoint_name"
        in ((ROOT / "data/model/sharded.py").read_text().splitlines()[33 - 1])
    )


@needs_dumps
@pytest.mark.parametrize("target", ["gpu", "tpu"])
def test_the_stack_that_a_sample_offloads(con, target):
    """Eight layers of 1024 x 512."""
    ingest_into(con, DUMPS / f"{target}-0.10.2/offload")
    layer = 1024 * 512 * 4
    (row,) = answer(con, "host-memory", function="loss")
    assert row[3:12] == (8 * layer, 8 * layer, 1.0, 1, "temp", layer, 1, layer, 1)
