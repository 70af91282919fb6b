import pytest
from small_db import Module, answer, rows, shape
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "padding", "run_name")


@pytest.mark.slow
def test_padding_at_the_peak_by_shape_and_layout(con):
    tiled = shape(con, "f32[2]{0:T(128)}")
    other = shape(con, "f32[4]{0:T(128)}")
    exact = shape(con, "f32[128]{0:T(128)}")
    table = shape(con, "(f32[2]{0:T(128)})")
    module = Module(con, 1, function_name="step", platform="tpu")
    module.allocation(0, "temp", 2000)
    module.allocation(1, "parameter", 512)
    module.value(1, 0, offset=0, size=512, shape=tiled, logical=8)
    module.value(2, 0, offset=512, size=512, shape=tiled, logical=8, live=(20, 30))
    module.value(3, 0, offset=0, size=512, shape=tiled, logical=8, is_phi=True)
    module.value(4, 0, offset=256, size=512, shape=other, logical=16)  # 256 bytes are value 1's
    module.value(5, 0, offset=1000, size=512, shape=exact, logical=512)
    module.value(6, 0, offset=1512, size=32, shape=table, logical=8)
    module.value(7, 1, offset=0, size=512, shape=tiled, logical=8)
    module.close()
    module.saves(1, 300)
    # f32[2]: 512 - 8 of value 1 and 512 - 8 of value 7; f32[4]: (512 - 256) - 16.
    # Nothing is saved at the least: other dimensions take the same tile.
    holds(con, "padding", """
        run_name | function_name | color | shape  | layout     | peak_padding_bytes
        r        | step          | 0     | f32[2] | {0:T(128)} | 1008
        r        | step          | 0     | f32[4] | {0:T(128)} | 240

        peak_value_count | low_saving_bytes | saving_bytes | size_bytes | logical_bytes
        2                | 0                | 1008         | 512        | 8
        1                | 0                | 496          | 512        | 16

        padding_bytes | padding_ratio | value_count | remedy
        504           | 0.984375      | 3           | NULL
        496           | 0.96875       | 1           | NULL
    """)  # fmt: skip
    holds(con, "padding", "run_name", platform="cpu")
    assert len(answer(con, "padding", top_n=1)) == 1


@pytest.mark.slow
def test_what_takes_one_tile_or_has_none_can_take_no_less(con):
    cases = [
        ("{:T(128)}", 512, "least_size"),
        ("{1,0:T(8,128)(2,1)}", 4096, "least_size"),
        ("{1,0:T(8,128)(2,1)}", 8192, "padding"),
        ("{0:S(4)}", 4096, "least_size"),
        ("", 512, "least_size"),
        ("{0:T(99999999999999999999)}", 512, "padding"),
    ]
    for number, (layout, size, _) in enumerate(cases):
        module = Module(con, number, f"r{number}", platform="tpu")
        module.allocation(0, "parameter", size)
        module.value(0, 0, 0, size, shape=shape(con, f"f32[3]{layout}", 12, 3), logical=12)
        module.close()
    sureness = dict(
        con.execute(
            "SELECT kind, sureness FROM advice_sureness "
            "WHERE platform = 'tpu' AND NOT is_from_zero AND kind IN ('least_size', 'padding')"
        ).fetchall()
    )
    expected = {f"r{number}": sureness[kind] for number, (_, _, kind) in enumerate(cases)}
    assert {row["run_name"]: row["sureness"] for row in rows(con, "padding", top_n=99)} == expected
    padded = {f"r{number}" for number, (_, _, kind) in enumerate(cases) if kind == "padding"}
    assert {row["run_name"] for row in rows(con, "advice", top_functions=9)} == padded


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "f32[8,100,64]{2,1,0:T(8,128)S(1)}",
            "dimension 2: 64 to 128, or merge it with 1; dimension 1: 100 to 96 or 104",
        ),
        ("bf16[8,100,256]{1,2,0:T(8,128)(2,1)}", "dimension 1: 100 to 128, or merge it with 2"),
        ("f32[64,7,500]{2,0,1:T(8,128)}", "dimension 2: 500 to 384 or 512"),
        ("f32[64,7,50]{2,0,1:T(8,128)}", "dimension 2: 50 to 128"),
        ("f32[800]{0:T(1024)}", "dimension 0: 800 to 1024"),
        ("f32[8,100,1]{1,2,0:T(1,128)}", "dimension 1: 100 to 128"),
        ("f32[8,128]{1,0:T(8,128)}", None),
        ("f32[8,100]{1,0}", None),
        ("f32[<=8,100]{0,1:T(8,128)}", "dimension 1: 100 to 96 or 104"),
        ("f32[9223372036854775807]{0:T(1024)}", None),
    ],
)
def test_it_says_what_would_fill_the_tiles(con, text, remedy):
    module = Module(con, 1, platform="tpu")
    module.allocation(0, "parameter", 2**20)
    module.value(0, 0, 0, 2**20, shape=shape(con, text, 2**19, 2**17), logical=2**19)
    module.close()
    assert answer(con, "padding")[0]["remedy"] == remedy


def test_without_live_ranges_ties_go_by_shape(con):
    module = Module(con, 1, has_live_ranges=False)
    module.allocation(0, "temp", 600)
    for value_id, dimension in ((1, 3), (2, 2)):
        text = shape(con, f"f32[{dimension}]")
        module.value(value_id, 0, 0, 30, None, shape=text, logical=20)
    holds(con, "padding", """
        shape  | layout | peak_padding_bytes
        NULL   | NULL   | NULL
        f32[2] | NULL   | NULL
        f32[3] | NULL   | NULL
    """)  # fmt: skip
