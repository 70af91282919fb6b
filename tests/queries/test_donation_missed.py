import numpy as np
import pytest
from ingesting import ingest_into
from shared_dumps import ROOT
from small_db import Module, answer, insert, shape
from tables import holds

from bufdb import resources
from bufdb.memory.donation import Spans, donated
from bufdb.memory.maxima import Steps
from bufdb.query import catalogue, execute
from bufdb.what_if import donation

LOOPS = ROOT / "data" / "loops"


def test_nothing_in_an_empty_database(con):
    holds(con, "donation-missed", "run_name")


def parameter(module, value_id, text, size, kind="parameter", **cells):
    module.allocation(
        value_id, kind, size, parameter_number=value_id, parameter_shape_index="{}", **cells
    )
    module.value(value_id, value_id, 0, size, (0, 0), f"p{value_id}", text, opcode="parameter",
                 op_name=f"params['{value_id}']")  # fmt: skip


def test_arguments_and_outputs_of_one_shape_are_paired_off(con):
    wide, narrow = shape(con, "f32[10]{0}"), shape(con, "f32[2]{0}")
    other_dtype, table = shape(con, "s32[10]{0}"), shape(con, "(f32[10]{0})")
    module = Module(con, 1, function_name="step")
    parameter(module, 0, wide, 40)
    parameter(module, 1, wide, 40)
    parameter(module, 2, narrow, 8)
    parameter(module, 3, wide, 40, kind="donated_parameter")
    parameter(module, 4, other_dtype, 40)
    module.allocation(5, "output", 40)
    module.value(10, 5, 0, 40, live=(1, 4), shape=other_dtype, name="earlier")
    module.value(11, 5, 0, 40, live=(4, 9), shape=wide, name="new_w", op_name="jit(step)/sub")
    module.allocation(6, "output", 8)
    module.value(12, 6, 0, 8, shape=narrow, name="new_b")
    module.allocation(7, "output", 8)
    module.value(13, 7, 0, 8, shape=narrow, name="loss_terms")
    module.allocation(8, "output", 8)
    module.value(14, 8, 0, 8, shape=table, name="tuple")
    module.close()
    # One wide output for two wide arguments, two narrow outputs for one narrow argument.
    holds(con, "donation-missed", """
        run_name | function_name | color | low_saving_bytes | saving_bytes
        r        | step          | 0     | 40               | 40
        r        | step          | 0     | 8                | 8

        together_low_saving_bytes | together_saving_bytes | size_bytes | parameter_number
        48                        | 48                    | 40         | 0
        48                        | 48                    | 8          | 2

        parameter_shape_index | parameter_name | shape      | output_name | output_op_name
        {}                    | params['0']    | f32[10]{0} | new_w       | jit(step)/sub
        {}                    | params['2']    | f32[2]{0}  | new_b       | NULL
    """)  # fmt: skip
    assert len(answer(con, "donation-missed", top_n=1)) == 1


def test_ties_by_run_and_parameter(con):
    text = shape(con, "f32[1]{0}")
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        for number in (1, 0):
            parameter(module, number, text, 4)
            module.allocation(8 + number, "output", 4)
            module.value(8 + number, 8 + number, 0, 4, shape=text)
        module.close()
    holds(con, "donation-missed", """
        run_name | parameter_number | output_name
        a        | 0                | v8
        a        | 1                | v9
        b        | 0                | v8
        b        | 1                | v9
    """)  # fmt: skip


def test_early_contents_of_the_output_need_bytes_elsewhere(con):
    text = shape(con, "f32[10]{0}")
    module = Module(con, 1, function_name="step")
    for number in (0, 1):
        module.allocation(number, "parameter", 40, parameter_number=number)
        module.value(number, number, 0, 40, (0, 9 - number), f"p{number}", text, opcode="parameter")
        module.allocation(2 + number, "output", 40)
        module.value(2 + number, 2 + number, 0, 40, (8, 12), f"new{number}", text)
    module.allocation(4, "temp", 100)
    module.value(4, 4, 0, 100, (1, 2), "wide")
    module.value(5, 4, 0, 70, (3, 12), "narrow")
    # What the first output holds at 5, while the parameter is to be read at 9.
    module.value(6, 2, 0, 40, (5, 6), "early", text)
    module.close()
    for time, occupied in ((1, 100), (3, 70), (13, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=occupied)  # fmt: skip
    # 70 + 40 bytes from 5 to 6, and 8, where new0 is written and p0 read: 30 of 40 are won. The
    # other is read at 8 for the last time, where new1 begins, and saves all.
    holds(con, "donation-missed", """
        parameter_number | low_saving_bytes | saving_bytes | together_low_saving_bytes
        1                | 40               | 40           | 70
        0                | 30               | 40           | 70

        together_saving_bytes | size_bytes
        80                    | 40
        80                    | 40
    """)  # fmt: skip


@pytest.mark.slow
def test_savings_are_those_of_the_rule(con):
    """SQL, `bufdb.what_if.donation` and `bufdb.memory.donation` agree, one by one and together."""
    ingest_into(con, sorted(LOOPS.iterdir()))
    rows = con.execute(
        "SELECT module_id, color, allocation_index, output_allocation_index, size_bytes, "
        "low_saving_bytes, together_low_saving_bytes FROM answered_donations ORDER BY ALL"
    ).fetchall()
    assert len(rows) > 5
    assert {row[5] == row[4] for row in rows} == {True, False}
    for module_id, color in sorted({row[:2] for row in rows}):
        own_rows = [row for row in rows if row[:2] == (module_id, color)]
        place = {"module_id": module_id, "color": color}
        last_use = {row[0]: row[5] for row in con.execute(donation.CANDIDATES, place).fetchall()}
        held = con.execute(donation.SPANS, place).fetchall()
        steps = con.execute(
            "SELECT start_time, occupied_temp_bytes FROM occupancy_steps "
            "WHERE module_id = ? AND color = ? ORDER BY start_time", [module_id, color]
        ).fetchall()  # fmt: skip
        time, occupied = np.array(steps, np.int64).T
        curve = Steps(time * 0, time, occupied)
        size = np.array([row[4] for row in own_rows])
        spans = np.array(
            [
                (number, *span)
                for number, row in enumerate(own_rows)
                for span in donation.before(
                    [donation.Span(*span[1:]) for span in held if span[0] == row[3]],
                    last_use[row[2]],
                )
            ],
            np.int64,
        ).reshape(-1, 3)
        for sets, at in ((np.arange(len(own_rows)), 5), (np.zeros(len(own_rows), np.int64), 6)):
            count = int(sets.max()) + 1
            free = np.full(len(own_rows), time.max() + 2)
            result = donated(curve, occupied.max(keepdims=True), sets * 0, size, free,
                            Spans(*spans.T), sets, count)  # fmt: skip
            assert result.saving.tolist() == [row[at] for row in own_rows][:count]


@pytest.mark.parametrize(
    ("reader", "maker", "saving", "is_copied"),
    [
        # Two values of 40 bytes with the argument at 2, one of them the result.
        (2, {"opcode": "custom-call"}, 0, True),
        (2, {"opcode": "dot"}, 0, True),
        (2, {"opcode": "fusion", "text": "fusion(p0), kind=kCustom, calls=f"}, 0, True),
        (2, {"opcode": "fusion", "text": "fusion(p0), kind=kLoop, calls=f"}, 40, False),
        (2, {"opcode": "subtract"}, 40, False),
        (1, {"opcode": "custom-call"}, 40, False),
        (3, {"opcode": "subtract"}, 0, False),
    ],
)
def test_what_makes_the_output_may_read_the_argument_itself(con, reader, maker, saving, is_copied):
    """XLA keeps an argument that is not donated live to the end; the last to read it counts."""
    text = shape(con, "f32[10]{0}")
    module = Module(con, 1, function_name="step")
    module.allocation(0, "parameter", 40, parameter_number=0)
    module.value(0, 0, 0, 40, (0, 9), "p0", text, opcode="parameter")
    module.allocation(1, "output", 40)
    module.value(1, 1, 0, 40, (2, 9), "new", text, program_order=2, **maker)
    module.allocation(2, "temp", 40)
    module.value(2, 2, 0, 40, (1, 3), "wide", opcode="add", program_order=1)
    module.value(3, 2, 0, 4, (3, 3), "after", opcode="add", program_order=3)
    module.use(0, {1: "wide", 2: "new", 3: "after"}[reader])
    module.close()
    for time, occupied in ((1, 40), (4, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=occupied)  # fmt: skip
    (row,) = answer(con, "donation-missed")
    assert row["low_saving_bytes"] == saving
    assert con.execute("SELECT is_copied FROM answered_donations").fetchall() == [(is_copied,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "kind", "sureness"),
    [
        ("new", "kOutput", "possible"),
        ("new", "kLoop", "likely"),
        ("new", "kCustom", "unlikely"),
        ("wide", "kOutput", "likely"),
    ],
)
def test_an_argument_in_a_fusion_with_a_product_may_be_a_factor(con, reader, kind, sureness):
    text = shape(con, "f32[10]{0:T(128)}")
    module = Module(con, 1, platform="tpu")
    module.allocation(0, "parameter", 40, parameter_number=0, parameter_shape_index="{}")
    module.value(0, 0, 0, 40, (0, 9), "p0", text, opcode="parameter")
    module.allocation(1, "output", 40)
    fusion = f"fusion(p0), kind={kind}, calls=f"
    module.value(1, 1, 0, 40, (2, 9), "new", text, program_order=2, opcode="fusion", text=fusion)
    module.allocation(2, "temp", 40)
    module.value(2, 2, 0, 40, (1, 1), "wide", opcode="add", program_order=1)
    module.use(0, reader)
    module.close()
    con.execute("INSERT INTO occupancy_steps VALUES (1, 0, 1, 40), (1, 0, 2, 0)")
    for name in ("donation-missed", "advice"):
        query = catalogue.Catalogue([resources.query_folder()]).find(name)
        names = [column.name for column in query.columns]
        rows = [
            dict(zip(names, row, strict=True))
            for row in execute.execute_query(con, query, execute.bind(query, {})).rows
        ]
        surenesses = [row["sureness"] for row in rows if row.get("kind", "donate") == "donate"]
        assert surenesses == ([] if (name, sureness) == ("advice", "unlikely") else [sureness])
