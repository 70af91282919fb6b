"""Collective operations and their buffers, by the texts of their instructions."""

import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import Module


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("attributes", "groups", "size"),
    [
        (", replica_groups={{0,2,4},{1,3,5}}, to_apply=%add", "{{0,2,4},{1,3,5}}", 3),
        (", replica_groups={{0,2},{1}}", "{{0,2},{1}}", None),
        (", replica_groups={}, dimensions={0}", "{}", None),
        (", replica_groups=[4,2]<=[8]", "[4,2]<=[8]", 2),
        (", replica_groups=[2,4]<=[4,2]T(1,0), x=1", "[2,4]<=[4,2]T(1,0)", 4),
        (", channel_id=1, replica_groups=mesh['a'=4,'b'=2] {'a'}, dimensions={0}",
         "mesh['a'=4,'b'=2] {'a'}", 4),
        (", replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b','a':(1)2}",
         "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b','a':(1)2}", 4),
        (", replica_groups=[1,99999999999999999999]<=[3]", "[1,99999999999999999999]<=[3]", None),
        (', metadata={op_name=", replica_groups={{0}}"}', None, None),
        ("", None, None),
    ],
)  # fmt: skip
def test_groups_of_devices(con, attributes, groups, size):
    text = f"%r = f32[2]{{0}} all-reduce(%p){attributes}"
    query = "SELECT device_groups($1), device_group_size(device_groups($1))"
    assert con.execute(query, [text]).fetchall() == [(groups, size)]


def operations(con, columns="opcode, is_async, is_fused, device_group_size"):
    return con.execute(f"SELECT {columns} FROM collectives ORDER BY instruction_name").fetchall()


def add(module, value_id, name, opcode, text="", shape="f32[8]{0}", **cells):
    module.value(value_id, 0, 100 * value_id, 32, name=name, opcode=opcode, shape=shape,
                 text=f"%{name} = {shape} {opcode}(%p){text}", **cells)  # fmt: skip


def temps(con, **cells):
    module = Module(con, 1, **cells)
    module.allocation(0, "temp", 9999)
    return module


@pytest.mark.slow
def test_all_devices_where_no_group_is_listed(con):
    module = temps(con, partition_count=4, replica_count=2)
    add(module, 1, "r", "all-reduce", ", replica_groups={}")
    assert operations(con) == [("all-reduce", False, False, 8)]


@pytest.mark.slow
def test_pairs_of_a_permute_are_no_group(con):
    module = temps(con)
    add(module, 1, "r", "collective-permute-start", ", source_target_pairs={{0,1},{1,0}}")
    rows = operations(con, "opcode, is_async, device_groups, device_group_size")
    assert rows == [("collective-permute", True, "{{0,1},{1,0}}", None)]


@pytest.mark.slow
def test_other_operations_are_none(con):
    module = temps(con)
    for number, opcode in enumerate(("all-reduce-done", "copy-start", "fusion", "add")):
        add(module, number, f"v{number}", opcode, ", calls=%fused_computation.1")
    assert operations(con) == []


@pytest.mark.slow
def test_fusions_of_a_tpu_hold_one_that_the_text_lacks(con):
    module = temps(con)
    add(module, 1, "async-collective-start.1", "fusion", ", kind=kCustom, calls=%f")
    add(module, 2, "async-collective-done.1", "fusion", ", kind=kCustom, calls=%f")
    add(module, 3, "fusion.9", "fusion", ", kind=kLoop, calls=%async_collective_fusion.9")
    assert operations(con) == [(None, True, True, None), (None, False, True, None)]


def place(con, value_id, name, index):
    con.execute(
        "INSERT INTO positions (module_id, value_id, position_ordinal, instruction_name, "
        "shape_index, is_defining) SELECT 1, ?, count(*), ?, ?, count(*) = 0 FROM positions",
        [value_id, name, index],
    )


def buffers(con):
    return con.execute(
        "SELECT instruction_name, value_id, is_written FROM collective_values ORDER BY ALL"
    ).fetchall()


@pytest.mark.slow
def test_the_result_of_what_a_start_wraps_is_that_of_the_start(con):
    module = temps(con)
    add(module, 1, "p", "add")
    add(module, 2, "inner", "all-to-all")
    add(module, 3, "start", "all-to-all-start", shape="((f32[8]), f32[8], u32[])")
    add(module, 4, "start", "all-to-all-start", shape="u32[]", shape_index="{2}")
    module.use(1, "start")
    for value_id, name, index in [
        (1, "p", "{}"), (1, "start", "{0,0}"), (2, "inner", "{}"), (2, "start", "{1}"),
        (3, "start", "{}"), (4, "start", "{2}"),
    ]:  # fmt: skip
        place(con, value_id, name, index)
    assert operations(con, "instruction_name, opcode") == [("start", "all-to-all")]
    assert buffers(con) == [("start", 1, False), ("start", 2, True)]


@pytest.mark.slow
def test_the_shape_of_an_all_reduce_start_is_its_result(con):
    module = temps(con)
    add(module, 1, "start", "all-reduce-start", shape_index="{0}")
    add(module, 2, "start", "all-reduce-start", shape_index="{1}")
    place(con, 1, "start", "{0}")
    place(con, 2, "start", "{1}")
    assert buffers(con) == [("start", 1, True), ("start", 2, True)]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_the_collectives_of_the_dumps_read_and_write(con, target):
    ingest_into(con, ROOT / f"data/sharded/{target}")
    rows = operations(con, "instruction_name, opcode, is_async, device_group_size")
    assert {opcode for _, opcode, _, _ in rows} == {
        "all-reduce", "all-gather", "all-to-all", "collective-permute",
    }  # fmt: skip
    assert {is_async for _, _, is_async, _ in rows} == {target == "gpu"}
    # The mesh is 4 x 2.
    sizes = {opcode: set() for _, opcode, _, _ in rows}
    for _, opcode, _, size in rows:
        sizes[opcode].add(size)
    assert sizes.pop("collective-permute") == {None}
    assert set.union(*sizes.values()) <= {2, 4, 8}
    both = {(name, is_written) for name, _, is_written in buffers(con)}
    assert both == {(name, flag) for name, *_ in rows for flag in (True, False)}
