import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import Module, insert
from tables import holds

from bufdb import resources
from bufdb.query import catalogue, execute
from bufdb.render import formats

REPLICATED, HALVES = "{replicated}", "{devices=[2,2]<=[4] last_tile_dim_replicate}"


def argument(module, index, size, sharding, shape="f32[8]{0}"):
    module.allocation(index, "parameter", size, parameter_number=index, parameter_shape_index="{}")
    text = f"%p{index} = {shape} parameter({index}), sharding={sharding}"
    module.value(
        index, index, 0, size, shape=shape, opcode="parameter", text=text, op_name=f"p[{index}]"
    )


def test_nothing_in_an_empty_database(con):
    holds(con, "replicated", "run_name")


@pytest.mark.slow
def test_what_each_device_would_hold_less_most_first(con):
    for shape, dimensions in (("f32[8]{0}", "[8]"), ("f32[3]{0}", "[3]")):
        insert(con, "shapes", shape=shape, dtype="f32", dimensions=dimensions)
    module = Module(con, 1, function_name="step", partition_count=4, replica_count=1)
    argument(module, 0, 60, HALVES)
    argument(module, 1, 80, REPLICATED)
    argument(module, 2, 40, "{devices=[4]<=[4]}")
    argument(module, 3, 12, REPLICATED, "f32[3]{0}")
    argument(module, 4, 8, "{manual}")
    module.close()
    # All 200 bytes are held for the whole run.
    holds(con, "replicated", """
        run_name | function_name | color | peak_bytes | replicated_bytes | replicated_ratio
        r        | step          | 0     | NULL       | NULL             | NULL
        r        | step          | 0     | 200        | 60               | 0.3
        r        | step          | 0     | 200        | 30               | 0.15
        r        | step          | 0     | 200        | 9                | 0.045

        sureness | size_bytes | device_count | tile_count | holder_count
        NULL     | NULL       | NULL         | NULL       | NULL
        likely   | 80         | 4            | 1          | 4
        likely   | 60         | 4            | 2          | 2
        possible | 12         | 4            | 1          | 4

        sharding                                     | shape     | parameter_number
        NULL                                         | NULL      | NULL
        {replicated}                                 | f32[8]{0} | 1
        {devices=[2,2]<=[4] last_tile_dim_replicate} | f32[8]{0} | 0
        {replicated}                                 | f32[3]{0} | 3

        parameter_name | unknown_reason
        NULL           | the sharding is manual: which device holds what is unknown (arguments: 1)
        p[1]           | NULL
        p[0]           | NULL
        p[3]           | NULL
    """)  # fmt: skip
    holds(con, "replicated", """
        parameter_name
        NULL
        p[1]
        p[0]
        p[3]
        p[2]
        p[4]
    """, all_arguments=True)  # fmt: skip
    holds(con, "replicated", """
        parameter_name
        NULL
        p[1]
    """, top_n=1)  # fmt: skip


def test_a_program_for_one_device_is_left_out(con):
    module = Module(con, 1, partition_count=1, replica_count=1)
    argument(module, 0, 8, REPLICATED)
    module.close()
    holds(con, "replicated", "run_name")


def test_no_sharding_and_one_device_says_nothing(con):
    module = Module(con, 1)
    module.allocation(0, "parameter", 8, parameter_number=0, parameter_shape_index="{}")
    module.value(0, 0, 0, 8, opcode="parameter", text="%p = f32[] parameter(0)")
    module.close()
    holds(con, "replicated", "run_name")


def test_ties_by_run_and_parameter(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name, partition_count=2, replica_count=1)
        for index in (1, 0):
            argument(module, index, 8, REPLICATED)
        module.close()
    holds(con, "replicated", """
        run_name | parameter_number
        a        | 0
        a        | 1
        b        | 0
        b        | 1
    """)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "gpu", "tpu"])
def test_its_answer_over_a_program_for_several_devices(con, target, golden):
    """data/model/sharded.py: the embedding could be divided, and so could its momentum."""
    ingest_into(con, ROOT / "data/sharded" / target)
    query = catalogue.Catalogue([resources.query_folder()]).find("replicated")
    bound = execute.bind(query, {"all_arguments": "true"})
    result = execute.execute_query(con, query, bound)
    golden(f"replicated_{target}.csv", formats.render(result, "csv")[0])
