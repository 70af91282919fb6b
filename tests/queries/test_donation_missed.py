import numpy as np
from ingesting import ingest_into
from shared_dumps import ROOT
from small_db import Module, answer, insert, shape

from bufdb.memory.donation import Spans, donated
from bufdb.memory.maxima import Steps

LOOPS = ROOT / "data" / "loops"


def test_nothing_in_an_empty_database(con):
    assert answer(con, "donation-missed") == []


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
    assert answer(con, "donation-missed") == [
        ("r", "step", 0, 40, 48, 40, 0, "{}", "params['0']", wide, "new_w", "jit(step)/sub"),
        ("r", "step", 0, 8, 48, 8, 2, "{}", "params['2']", narrow, "new_b", None),
    ]
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
    rows = [(row[0], row[6], row[10]) for row in answer(con, "donation-missed")]
    assert rows == [("a", 0, "v8"), ("a", 1, "v9"), ("b", 0, "v8"), ("b", 1, "v9")]


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
    rows = answer(con, "donation-missed")
    assert [(row[6], *row[3:6]) for row in rows] == [(1, 40, 70, 40), (0, 30, 70, 40)]


def test_savings_are_those_of_the_rule(con):
    """SQL and `bufdb.memory.donation` agree, one by one and together."""
    ingest_into(con, sorted(LOOPS.iterdir()))
    spans_of = con.execute(
        'SELECT module_id, allocation_index, start_time, end_time FROM "values" '
        "JOIN live_ranges USING (module_id, value_id) WHERE start_time <= end_time"
    ).fetchall()
    rows = con.execute(
        "SELECT donations.module_id, donations.color, output_allocation_index, "
        "donations.size_bytes, saving_bytes, together_saving_bytes, max(end_time) "
        'FROM answered_donations AS donations JOIN "values" USING (module_id, allocation_index) '
        "JOIN live_ranges USING (module_id, value_id) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert len(rows) > 5
    assert any(0 < row[4] < row[3] for row in rows)
    for module_id, color in sorted({row[:2] for row in rows}):
        mine = [row for row in rows if row[:2] == (module_id, color)]
        steps = con.execute(
            "SELECT start_time, occupied_temp_bytes FROM occupancy_steps "
            "WHERE module_id = ? AND color = ? ORDER BY start_time", [module_id, color]
        ).fetchall()  # fmt: skip
        time, occupied = np.array(steps, np.int64).T
        curve = Steps(time * 0, time, occupied)
        size, last_use = (np.array([row[at] for row in mine]) for at in (3, 6))
        spans = np.array(
            [
                (number, start, end)
                for number, row in enumerate(mine)
                for module, allocation, start, end in spans_of
                if (module, allocation) == (module_id, row[2])
            ],
            np.int64,
        ).reshape(-1, 3)
        for sets, at in ((np.arange(len(mine)), 4), (np.zeros(len(mine), np.int64), 5)):
            count = int(sets.max()) + 1
            found = donated(curve, occupied.max(keepdims=True), sets * 0, size, last_use,
                            Spans(*spans.T), sets, count)  # fmt: skip
            assert found.saving.tolist() == [row[at] for row in mine][:count]
