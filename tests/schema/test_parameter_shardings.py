"""Division of entry parameters among devices, by the texts of their instructions."""

import shutil

import pytest
from ingesting import ingest_into
from places import ROOT
from shared_dumps import DUMPS, needs_dumps
from small_db import Module, insert

SHARDED = ROOT / "data/sharded"


def numbers(con, sharding):
    """Kind, devices and parts of a sharding."""
    (row,) = con.execute(
        "SELECT sharding_kind($1), sharding_device_count($1), sharding_tile_count($1)", [sharding]
    ).fetchall()
    return row


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("sharding", "kind", "devices", "tiles"),
    [
        ("{replicated}", "replicated", None, 1),
        ("{maximal device=0}", "maximal", None, 1),
        ("{single_device[device_id=5]}", "maximal", None, 1),
        ("{devices=[2,2]0,1,2,3}", "tiled", 4, 4),
        ("{devices=[1,4,2]<=[4,2]T(1,0)}", "tiled", 8, 8),
        ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "tiled", 8, 4),
        ("{devices=[2,1,2,2]<=[8] last_tile_dims={replicated}}", "tiled", 8, 4),
        ("{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}", "manual", 8, None),
        ("{manual}", "manual", None, None),
        ("{unreduced}", "unreduced", None, None),
        ("{mesh[], replicated}", "replicated", None, 1),
        ("{mesh['a'=2,'b'=8], replicated}", "replicated", 16, 1),
        ("{mesh['a'=2,'b'=8], [{}, {}]}", "tiled", 16, 1),
        ("{mesh['a'=2,'b'=4,'c'=3], [{'c'}, {'a', 'b':(2)2, ?}]}", "tiled", 24, 12),
        ("{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}], replicated={'b'}}",
         "tiled", 8, 2),
        ("{mesh['a'=2,'b'=8], [{}], manual={'b':(4)2}}", "manual", 16, None),
        ("{mesh['a'=2,'b'=8], [], unreduced=max{'a'}}", "unreduced", 16, None),
        # What makes no sense is not understood, or gives no number.
        ("{unknown}", None, None, None),
        ("{mesh['a'=2], [{'z'}]}", "tiled", 2, None),
        ("{devices=[99999999999999999999,2]<=[3]}", "tiled", None, None),
        ("{devices=[9000000000000000000,9000000000000000000]<=[3]}", "tiled", None, None),
        ("{devices=[0]<=[0]}", "tiled", None, None),
    ],
)  # fmt: skip
def test_what_shardings_say(con, sharding, kind, devices, tiles):
    assert numbers(con, sharding) == (kind, devices, tiles)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attributes", "sharding"),
    [
        (', sharding={replicated}, metadata={op_name="a{"}', "{replicated}"),
        (', parameter_replication={true}, sharding={devices=[2]<=[2] metadata={op_name="b}"}}',
         "{devices=[2]<=[2]}"),
        (", sharding={{replicated}, {mesh['a'=2], [{'a'}], metadata={{op_name=\"c\"}, {x=1}}}}",
         "{{replicated}, {mesh['a'=2], [{'a'}]}}"),
        (', frontend_attributes={x="sharding={manual}"}', None),
        ("", None),
        (", sharding={devices=[2", None),
    ],
)  # fmt: skip
def test_the_sharding_in_a_text(con, attributes, sharding):
    text = f"%p = f32[2]{{0}} parameter(0){attributes}"
    assert con.execute("SELECT sharding_text(?)", [text]).fetchall() == [(sharding,)]


def parameter(module, index, size, sharding, name=None, number=None, shape="f32[8]{0}", at="{}"):
    module.allocation(
        index, "parameter", size, parameter_number=index if number is None else number,
        parameter_shape_index=at,
    )  # fmt: skip
    attribute = f", sharding={sharding}" if sharding else ""
    module.value(
        index, index, 0, size, name=name, shape=shape, shape_index=at, opcode="parameter",
        text=f"%p = f32[8]{{0}} parameter({index}){attribute}",
    )  # fmt: skip


def shardings(con, *columns):
    names = ", ".join(columns)
    return con.execute(
        f"SELECT {names} FROM parameter_shardings ORDER BY module_id, allocation_index"
    ).fetchall()


@pytest.mark.slow
def test_holders_of_the_same_part(con):
    insert(con, "shapes", shape="f32[8]{0}", dtype="f32", dimensions="[8]")
    module = Module(con, 1, partition_count=8, replica_count=1)
    parameter(module, 0, 33, "{replicated}")
    parameter(module, 1, 32, "{devices=[4,2]<=[8] last_tile_dim_replicate}")
    parameter(module, 2, 32, "{devices=[8]<=[8]}")
    parameter(module, 3, 32, "{maximal device=0}")
    parameter(module, 4, 32, "{manual}")
    parameter(module, 5, 32, None)
    parameter(module, 6, 32, "{devices=[4]<=[4]}")
    parameter(module, 7, 32, "{strange}")
    module.close()
    rows = shardings(con, "tile_count", "holder_count", "replicated_bytes", "is_divisible")
    # A share of 33 bytes among 8 is 5, rounded up.
    assert rows[:4] == [(1, 8, 28, True), (4, 2, 16, True), (8, 1, 0, True), (1, 1, 0, True)]
    assert rows[4:] == [(None,) * 4] * 4
    assert [reason for (reason,) in shardings(con, "unknown_sharding_reason")] == [
        *[None] * 4,
        "the sharding is manual: which device holds what is unknown",
        "the dump prints no sharding of the parameter; on TPU before_optimizations.txt alone has "
        "it, which is missing",
        "the sharding does not fit the number of devices",
        "the sharding is not understood",
    ]


@pytest.mark.slow
def test_a_tuple_has_a_sharding_for_each_array(con):
    whole = "{{replicated}, {devices=[2]<=[2]}, /*index=2*/{replicated}}"
    module = Module(con, 1, partition_count=2, replica_count=1)
    for place, index in enumerate(("{0}", "{2}", "{10,1}")):
        parameter(module, place, 8, whole, name="p", number=0, at=index)
    module.close()
    assert shardings(con, "sharding", "replicated_bytes") == [
        ("{replicated}", 4), ("{devices=[2]<=[2]}", 0), ("{replicated}", 4),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_sharding_of_another_tuple_is_not_understood(con):
    module = Module(con, 1, partition_count=2, replica_count=1)
    parameter(module, 0, 8, "{{replicated}, {replicated}}", name="p", number=0, at="{0}")
    module.close()
    assert shardings(con, "sharding", "replicated_bytes", "unknown_sharding_reason") == [
        ("{{replicated}, {replicated}}", None, "the sharding is not understood")
    ]


@pytest.mark.slow
def test_other_parameters_give_the_device_count(con):
    for module_id, other in ((1, "{devices=[4]<=[4]}"), (2, "{replicated}")):
        module = Module(con, module_id)
        parameter(module, 0, 8, "{replicated}")
        parameter(module, 1, 8, other)
        module.close()
    assert shardings(con, "device_count", "replicated_bytes") == [
        (4, 6), (4, 0), (None, None), (None, None),
    ]  # fmt: skip
    reason = "the number of devices is in the HLO text, which is missing"
    assert [row for (row,) in shardings(con, "unknown_sharding_reason")[2:]] == [reason, reason]


@pytest.mark.slow
def test_one_device_has_nothing_to_share(con):
    module = Module(con, 1, partition_count=1, replica_count=1)
    parameter(module, 0, 8, None)
    parameter(module, 1, 8, "{manual}")
    module.close()
    rows = shardings(con, "holder_count", "replicated_bytes", "unknown_sharding_reason")
    assert rows == [(1, 0, None), (1, 0, None)]


@pytest.mark.slow
def test_whether_replicas_are_equal_is_unknown(con):
    module = Module(con, 1, partition_count=2, replica_count=2)
    parameter(module, 0, 8, "{replicated}")
    module.close()
    assert shardings(con, "replicated_bytes", "unknown_sharding_reason") == [
        (None, "the dump does not tell whether replicas hold the same")
    ]


def add_sharding(module, number, shape, sharding):
    """Add a parameter of before_optimizations.txt."""
    insert(
        module.con, "entry_parameters", module_id=module.id, parameter_number=number,
        shape=shape, text=f"%p = {shape} parameter({number}), sharding={sharding}",
    )  # fmt: skip


@pytest.mark.slow
def test_a_sharding_before_optimization_must_fit_the_shape(con):
    for shape, dimensions in (("f32[8,3]{1,0}", "[8, 3]"), ("f32[]", "[]")):
        insert(con, "shapes", shape=shape, dtype="f32", dimensions=dimensions)
    whole = {
        "f32[8,3]{1,0:T(8,128)}": "{replicated}",
        "f32[32,3]{0,1}": "{devices=[4,1]<=[4]}",
        "f32[8,5]{1,0}": "{devices=[1,2,2]<=[4] last_tile_dim_replicate}",
        "f32[8,4]{1,0}": "{replicated}",
        "f32[8,3,1]{2,1,0}": "{devices=[1,1,4]<=[4]}",
        "f32[24]": "{mesh['a'=4], [{}]}",
        "f32[<=8,3]": "{manual}",
        "f32[8,?]": "{replicated}",
        "f32[9223372036854775807,9]": "{devices=[9223372036854775807,3]<=[1]}",
    }
    module = Module(con, 1, partition_count=4, replica_count=1)
    for number, (shape, sharding) in enumerate(whole.items()):
        parameter(module, number, 96, None, shape="f32[8,3]{1,0}")
        add_sharding(module, number, shape, sharding)
    parameter(module, 9, 4, None, shape="f32[]")
    add_sharding(module, 9, "f32[]", "{replicated}")
    parameter(module, 10, 96, None, shape="f32[8,3]{1,0}")
    module.close()
    misfit = "the sharding in before_optimizations.txt does not fit what a device holds"
    source = "before_optimizations"
    assert shardings(con, "holder_count", "sharding_source", "unknown_sharding_reason") == [
        (4, source, None),
        (1, source, None),
        (2, source, None),  # a dimension of 5 in two parts, one of them padded
        (None, None, misfit),
        (None, None, misfit),
        (None, None, misfit),
        (None, source, "the sharding is manual: which device holds what is unknown"),
        (None, None, misfit),
        (None, None, misfit),
        (4, source, None),
        (None, None, "no text of the dump has a sharding of the parameter"),
    ]


@pytest.mark.slow
def test_the_optimized_text_wins_over_the_other(con):
    insert(con, "shapes", shape="f32[8]{0}", dtype="f32", dimensions="[8]")
    module = Module(con, 1, partition_count=2, replica_count=1)
    for number, (own, whole, before) in enumerate([
        ("{replicated}", "f32[8]", "{replicated}"),
        ("{replicated}", "f32[16]", "{devices=[2]<=[2]}"),
        ("{devices=[2]<=[2]}", "f32[16]", "{devices=[2]0,1}"),
        ("{devices=[2]<=[2]}", "f32[9]", "{devices=[2]<=[2]}"),
        ("{manual}", "f32[8]", "{manual}"),
    ]):  # fmt: skip
        parameter(module, number, 32, own)
        add_sharding(module, number, whole, before)
    module.close()
    assert shardings(con, "sharding", "sharding_source", "is_contradicted") == [
        ("{replicated}", "optimized text", False),
        ("{replicated}", "optimized text", True),
        ("{devices=[2]<=[2]}", "optimized text", False),
        ("{devices=[2]<=[2]}", "optimized text", True),
        ("{manual}", "optimized text", False),
    ]


@pytest.mark.slow
def test_arrays_of_a_tuple_before_optimization(con):
    for size in (4, 8):
        insert(con, "shapes", shape=f"f32[{size}]{{0}}", dtype="f32", dimensions=f"[{size}]")
    for module_id, count in ((1, 2), (2, 3)):
        module = Module(con, module_id, partition_count=2, replica_count=1)
        for place, (at, size) in enumerate((("{0}", 4), ("{1}", 8), ("{10,0}", 8))[:count]):
            parameter(
                module, place, 4 * size, None, "p", 0, shape=f"f32[{size}]{{0}}", at=at
            )  # fmt: skip
        sharding = "{{devices=[2]<=[2]}, /*index=1*/{replicated}}"
        add_sharding(module, 0, "(f32[8]{0:T(128)}, /*index=1*/(f32[8]{0}))", sharding)
        module.close()
    rows = shardings(con, "sharding", "holder_count")
    assert rows == [("{devices=[2]<=[2]}", 1), ("{replicated}", 2), *[(None, None)] * 3]


def divided(con, folder, columns="parameter_name, tile_count, holder_count"):
    con.execute("DELETE FROM modules")
    ingest_into(con, folder)
    return con.execute(
        f"SELECT {columns} FROM parameter_shardings "
        "SEMI JOIN modules USING (module_id) ORDER BY module_id, allocation_index"
    ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(("target", "data"), [("cpu", 4), ("gpu", 4), ("tpu", 2)])
def test_the_program_that_made_the_dumps_says_what_is_divided(con, target, data):
    """data/model/sharded.py: a mesh of half as many devices as there are, and model=2."""
    weights = {"embedding": 1, "norm": 1, "w_in": 2 * data, "w_out": 2 * data}
    expected = {
        f"{owner}['{name}']": (tiles, 2 * data // tiles)
        for owner in ("params", "opt_state['momentum']")
        for name, tiles in weights.items()
    } | {"tokens": (data, 2)}
    rows = divided(con, SHARDED / target)
    assert {name: counts for name, *counts in rows} == {
        name: list(counts) for name, counts in expected.items()
    }
    source = "before_optimizations" if target == "tpu" else "optimized text"
    assert shardings(con, "DISTINCT sharding_source, is_contradicted") == [(source, False)]


def test_bytes_on_one_device(con):
    sizes = dict(divided(con, SHARDED / "cpu", "parameter_name, size_bytes"))
    assert sizes["params['embedding']"] == 512 * 64 * 4
    assert sizes["params['w_in']"] == 4 * 64 * 256 * 4 // 8


def multi_device_dumps():
    """List real dumps for several devices that have the text before optimizations."""
    folders = [SHARDED / "cpu", SHARDED / "gpu"]
    return [*folders, pytest.param(DUMPS / "gpu-0.10.2" / "fsdp", marks=needs_dumps)]


@pytest.mark.slow
@pytest.mark.parametrize("folder", multi_device_dumps(), ids=lambda folder: folder.name)
def test_both_texts_say_the_same(con, folder):
    """Without shardings in the optimized text, those before optimizations give the same rows."""
    columns = "parameter_number, sharding, tile_count, holder_count, replicated_bytes"
    own = divided(con, folder, columns)
    assert own, "there are parameters"
    con.execute("UPDATE instructions SET text = replace(text, ', sharding=', ', was=')")
    select = f"SELECT {columns} FROM parameter_shardings ORDER BY module_id, allocation_index"
    assert con.execute(select).fetchall() == own
    sources = con.execute("SELECT DISTINCT sharding_source FROM parameter_shardings").fetchall()
    assert sources == [("before_optimizations",)]


@pytest.mark.slow
def test_without_the_file_a_tpu_dump_says_where_it_would_be(con, tmp_path):
    for path in (SHARDED / "tpu").iterdir():
        if "before_optimizations" not in path.name:
            shutil.copy(path, tmp_path)
    reason = (
        "the dump prints no sharding of the parameter; on TPU before_optimizations.txt alone has "
        "it, which is missing"
    )
    assert divided(con, tmp_path, "sharding, unknown_sharding_reason") == [(None, reason)] * 9
