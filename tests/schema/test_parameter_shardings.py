"""How entry parameters are divided among devices, by the texts of their instructions."""

import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import Module, insert

SHARDED = ROOT / "data/sharded"


def numbers(con, sharding):
    """Kind, devices and parts of a sharding."""
    (row,) = con.execute(
        "SELECT sharding_kind($1), sharding_device_count($1), sharding_tile_count($1)", [sharding]
    ).fetchall()
    return row


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
    found = shardings(con, "tile_count", "holder_count", "replicated_bytes", "is_divisible")
    # A share of 33 bytes among 8 is 5, rounded up.
    assert found[:4] == [(1, 8, 28, True), (4, 2, 16, True), (8, 1, 0, True), (1, 1, 0, True)]
    assert found[4:] == [(None,) * 4] * 4
    assert [reason for (reason,) in shardings(con, "unknown_sharding_reason")] == [
        *[None] * 4,
        "the sharding is manual: who holds what is not told",
        "the dump prints no sharding of the parameter (compilers for TPU take it away)",
        "the sharding does not fit the number of devices",
        "the sharding is not understood",
    ]


def test_a_tuple_has_a_sharding_for_each_array(con):
    whole = "{{replicated}, {devices=[2]<=[2]}, /*index=2*/{replicated}}"
    module = Module(con, 1, partition_count=2, replica_count=1)
    for place, index in enumerate(("{0}", "{2}", "{10,1}")):
        parameter(module, place, 8, whole, name="p", number=0, at=index)
    module.close()
    assert shardings(con, "sharding", "replicated_bytes") == [
        ("{replicated}", 4), ("{devices=[2]<=[2]}", 0), ("{replicated}", 4),
    ]  # fmt: skip


def test_a_tuple_that_its_sharding_does_not_fit_is_not_understood(con):
    module = Module(con, 1, partition_count=2, replica_count=1)
    parameter(module, 0, 8, "{{replicated}, {replicated}}", name="p", number=0, at="{0}")
    module.close()
    assert shardings(con, "sharding", "replicated_bytes", "unknown_sharding_reason") == [
        ("{{replicated}, {replicated}}", None, "the sharding is not understood")
    ]


def test_without_the_hlo_text_other_parameters_tell_the_number_of_devices(con):
    for module_id, other in ((1, "{devices=[4]<=[4]}"), (2, "{replicated}")):
        module = Module(con, module_id)
        parameter(module, 0, 8, "{replicated}")
        parameter(module, 1, 8, other)
        module.close()
    assert shardings(con, "device_count", "replicated_bytes") == [
        (4, 6), (4, 0), (None, None), (None, None),
    ]  # fmt: skip
    reason = "the number of devices is in the HLO text, which is not there"
    assert [row for (row,) in shardings(con, "unknown_sharding_reason")[2:]] == [reason, reason]


def test_one_device_has_nothing_to_share(con):
    module = Module(con, 1, partition_count=1, replica_count=1)
    parameter(module, 0, 8, None)
    parameter(module, 1, 8, "{manual}")
    module.close()
    found = shardings(con, "holder_count", "replicated_bytes", "unknown_sharding_reason")
    assert found == [(1, 0, None), (1, 0, None)]


def test_whether_replicas_hold_the_same_is_not_told(con):
    module = Module(con, 1, partition_count=2, replica_count=2)
    parameter(module, 0, 8, "{replicated}")
    module.close()
    assert shardings(con, "replicated_bytes", "unknown_sharding_reason") == [
        (None, "the dump does not tell whether replicas hold the same")
    ]


def test_the_program_that_made_the_dumps_says_what_is_divided(con):
    """data/model/sharded.py: a mesh of data=4 and model=2."""
    ingest_into(con, SHARDED / "cpu")
    found = con.execute(
        "SELECT parameter_name, tile_count, holder_count, size_bytes FROM parameter_shardings "
        "ORDER BY parameter_number"
    ).fetchall()
    divided = {"['embedding']": (1, 8), "['norm']": (1, 8), "['w_in']": (8, 1), "['w_out']": (8, 1)}
    expected = {
        f"{owner}{name}": counts
        for owner in ("params", "opt_state['momentum']")
        for name, counts in divided.items()
    }
    expected["tokens"] = (4, 2)
    assert {name: counts for name, *counts, _ in [(r[0], *r[1:3], 0) for r in found]} == {
        name: list(counts) for name, counts in expected.items()
    }
    sizes = {row[0]: row[3] for row in found}
    assert sizes["params['embedding']"] == 512 * 64 * 4
    assert sizes["params['w_in']"] == 4 * 64 * 256 * 4 // 8
