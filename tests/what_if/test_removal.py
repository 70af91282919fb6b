"""Several things away at once, one after another, and donations."""

import pytest
from small_db import insert, shape
from what_if_cases import STEPS, Case, ask, figures, two_peaks

from bufdb.errors import UsageError
from bufdb.what_if import donation, model
from bufdb.what_if.donation import Span


def test_two_together_save_more_than_both(con):
    two_peaks(con)
    assert figures(ask(con, "line:model.py:*")) == [
        ("/m/model.py:53", 6, 0, 10, 6),
        ("/m/model.py:54", 0, 0, 10, 1),
        ("all 2", 6, 6, 4, 0),
    ]


@pytest.mark.slow
def test_names_are_computed_in_parts_of_any_size(con, monkeypatch):
    two_peaks(con)
    whole = figures(ask(con, "op:*"))
    monkeypatch.setattr(model, "_PAIRS", 1)
    assert figures(ask(con, "op:*")) == whole


def test_the_instant_that_caps_the_saving(con):
    two_peaks(con)
    instants = ask(con, "line:/m/model.py:53").instants
    (instant,) = instants.values()
    assert list(instants) == [6]
    assert (instant.instruction_name, instant.op_path) == ("v2", "net/mul")
    assert instant.source == "/m/model.py:54"


@pytest.mark.slow
def test_a_share_of_the_bytes_stays(con):
    two_peaks(con)
    assert figures(ask(con, "op:*", keep="1/2"))[-1] == ("all 3", 10, 5, 5, 1)
    # Parts of a byte stay.
    assert figures(ask(con, "line:other.py:53", keep="1/8"))[-1] == ("all 1", 4, 3, 7, 1)
    assert figures(ask(con, "op:*", keep="1"))[-1] == ("all 3", 10, 0, 10, 1)


@pytest.mark.slow
def test_until_it_fits_each_by_what_is_left(con):
    case = Case(con)
    case.temp(1, 5, (1, 3), "/m/a.py:1")
    case.temp(2, 4, (1, 3), "/m/a.py:2")
    case.temp(3, 6, (6, 8), "/m/a.py:3")
    case.temp(4, 1, (0, 9), "/m/a.py:4")
    case.close()
    answer = ask(con, until=3)
    assert figures(answer) == [
        ("/m/a.py:1", 5, 3, 7, 6),
        ("/m/a.py:3", 0, 2, 5, 1),
        ("/m/a.py:2", 4, 4, 1, 0),
    ]
    assert answer.fits is True
    assert figures(ask(con, until=7)) == [("/m/a.py:1", 5, 3, 7, 6)]


@pytest.mark.slow
def test_until_goes_on_past_equal_peaks(con):
    two_peaks(con)
    answer = ask(con, until=2)
    assert figures(answer) == [
        ("/m/other.py:53", 4, 4, 6, 1),
        ("/m/model.py:53", 6, 0, 6, 6),
        ("/m/model.py:54", 0, 6, 0, 0),
    ]
    assert answer.fits is True
    answer = ask(con, "line:model.py:54", until=2, by="op")
    assert figures(answer) == [
        ("all 1", 0, 0, 10, 1),
        ("net/dot", 6, 6, 4, 0),
        ("other/dot", 4, 4, 0, 0),
    ]
    assert answer.fits is True


@pytest.mark.slow
def test_values_that_until_has_no_name_for_are_counted(con):
    case = Case(con)
    case.temp(1, 5, (1, 3), "/m/a.py:1", op_name="jit(f)/dot")
    case.temp(2, 4, (2, 3), op_name="jit(f)/add")
    case.temp(3, 2, (2, 3), op_name="jit(f)/mul", name="third")
    case.close()
    answer = ask(con, until=1)
    assert (figures(answer), answer.fits) == ([("/m/a.py:1", 5, 5, 6, 2)], False)
    assert answer.nameless == 2
    assert ask(con, "value:third", until=1).nameless == 1
    assert ask(con, until=6).nameless == ask(con, until=1, by="op").nameless == 0


def test_until_nothing_helps(con):
    case = Case(con)
    case.temp(1, 6, (1, 3), "/m/a.py:1")
    case.temp(2, 5, (6, 8))  # of no line
    case.close()
    answer = ask(con, until=2)
    assert figures(answer) == [("/m/a.py:1", 6, 1, 5, 6)]
    assert answer.fits is False


@pytest.mark.slow
def test_the_cheapest_first_by_what_it_saves(con):
    case = Case(con)
    case.temp(1, 60, (1, 3), "/m/a.py:1")
    case.temp(2, 50, (1, 3), "/m/a.py:2")
    case.temp(3, 40, (1, 3), "/m/a.py:3")
    for value_id, count in ((1, 6000), (2, 100)):
        insert(con, "recompute_costs", module_id=1, value_id=value_id, operation_count=count)
    case.close()
    assert [row.name for row in ask(con, until=0).rows] == ["/m/a.py:1", "/m/a.py:2", "/m/a.py:3"]
    rows = ask(con, until=0, is_cheapest_first=True).rows
    # 2 operations a byte, 100, and an unknown cost.
    assert [(row.name, row.operation_count) for row in rows] == [
        ("/m/a.py:2", 100),
        ("/m/a.py:1", 6000),
        ("/m/a.py:3", None),
    ]


def stacks(con):
    """Two lines that a scan saves: of what each makes one product is the most."""
    case = Case(con)
    for number, size, line in ((1, 60, "/m/a.py:1"), (2, 50, "/m/a.py:1"), (3, 40, "/m/a.py:2")):
        case.temp(number, size, (1, 3))
        case.origin(number, line, op_name="jit(f)/jvp()/while/body/dot", slice_count=10,
                    written_by=f"update.{number}")  # fmt: skip
    case.temp(4, 20, (1, 3), "/m/a.py:3")
    for stack, kind, part, cells in (
        (1, "all_again", 0, {"operation_count": 6000}),
        (2, "all_again", 0, {"operation_count": 6000}),
        (2, "all_again", 1, {"operation_count": 7}),
        (2, "again", 1, {"operation_count": 7}),
        (2, "kept", 0, {"kept_bytes": 12, "kept_name": "/m/a.py:9"}),
        (3, "all_again", 0, {"operation_count": 6000}),
        (3, "again", 0, {"operation_count": 6000}),
    ):
        insert(con, "recompute_parts", module_id=1, written_by=f"update.{stack}", part_kind=kind,
               part_index=part, saving_form="wrap", **cells)  # fmt: skip
    case.close()


@pytest.mark.slow
def test_what_is_kept_instead_makes_a_low_end(con):
    stacks(con)
    one, two, both = ask(con, "line:saved *").rows
    # The first value stays, for the second another line's is kept, and one slice is there.
    assert (one.low.saving_bytes, one.saving_bytes) == (50 - 12 - 6, 110)
    assert (one.low.form, one.low.kept_name) == ("wrap", "/m/a.py:9")
    assert (one.low.operation_count, one.operation_count) == (7, 6007)
    # What the second line computes again is not kept for the first.
    assert two.low.saving_bytes == 40 - 4
    assert (both.low.saving_bytes, both.low.kept_name) == (50 + 40 - 6, None)
    assert (both.low.operation_count, both.operation_count) == (6007, 6007)
    answer = ask(con, "line:a.py:3")
    assert (answer.rows[0].low, answer.low_saving_bytes) == (None, None)
    assert ask(con, "line:saved *", keep="1/2").rows[0].low is None


def test_what_is_computed_again_already_costs_nothing_more(con):
    stacks(con)
    rows = ask(con, until=20, is_cheapest_first=True).rows
    assert [(row.name, row.saving_bytes) for row in rows] == [
        ("saved /m/a.py:1", 110),
        ("saved /m/a.py:2", 40),
    ]
    assert [row.low.saving_bytes for row in rows] == [32, 40]


def test_what_saves_next_to_nothing_is_not_the_cheapest(con):
    case = Case(con)
    case.temp(1, 500, (1, 3), "/m/a.py:1")
    case.temp(2, 3, (1, 3), "/m/a.py:2")
    insert(con, "recompute_costs", module_id=1, value_id=1, operation_count=6000)
    case.close()
    rows = ask(con, until=0, is_cheapest_first=True).rows
    assert [(row.name, row.operation_count) for row in rows] == [
        ("/m/a.py:1", 6000),
        ("/m/a.py:2", 0),
    ]


def test_until_what_fits_already(con):
    two_peaks(con)
    answer = ask(con, until=10)
    assert (answer.rows, answer.fits) == ([], True)
    assert answer.left.peak_bytes == 10


def test_inputs_of_a_layer_are_marked(con):
    case = Case(con)
    case.temp(1, 5, (1, 3))
    case.temp(2, 5, (1, 3))
    case.origin(1, "/m/a.py:1", is_layer_input=True)
    case.origin(2, "/m/a.py:2")
    case.close()
    assert [row.is_layer_input for row in ask(con, "line:a.py:*").rows] == [True, False, True]


def test_nothing_temporary(con):
    case = Case(con)
    case.close()
    with pytest.raises(UsageError, match="no line"):
        ask(con, "line:*")
    assert figures(ask(con, until=0)) == []


def test_fixed_bytes_stay(con):
    case = Case(con)
    case.allocation(1, "constant", 100)
    case.temp(1, 5, (1, 3))
    case.close()
    assert figures(ask(con, "value:v1")) == [("v1", 5, 5, 100, 0), ("all 1", 5, 5, 100, 0)]


# -- donation --------------------------------------------------------------------------------------


def test_an_output_counts_until_its_parameter_is_read():
    assert donation.before([Span(4, 9, False), Span(0, 2, False), Span(3, 3, True)], 6) == ((0, 5),)
    # What begins at the last use takes its bytes then, unless it can be written over what it reads.
    assert donation.before([Span(6, 9, False)], 6) == ()
    assert donation.before([Span(6, 9, True), Span(7, 8, True)], 6) == ((6, 6),)


@pytest.fixture
def step(con):
    """A parameter that is read until 6 and an output that holds gradients from 4 on."""
    case = Case(con)
    case.allocation(1, "parameter", 40, parameter_number=3)
    case.value(11, 1, 0, 40, live=(0, 6), name="p", opcode="parameter", op_name="params['w']")
    case.allocation(2, "output", 40)
    case.value(12, 2, 0, 40, live=(4, 5), name="gradients")
    case.value(13, 2, 0, 40, live=(7, STEPS), name="new")
    case.allocation(3, "donated_parameter", 8, parameter_number=4)
    case.value(14, 3, 0, 8, name="q", opcode="parameter", op_name="state")
    case.temp(1, 50, (1, 2), "/m/a.py:1")
    case.temp(2, 30, (4, 4), "/m/a.py:2")
    case.close()
    return con


@pytest.mark.slow
def test_a_donation_needs_bytes_for_earlier_contents(step):
    # 88 fixed bytes; 50 at 1, and at 4 30 with 40 of early contents.
    assert figures(ask(step, donate=["3"])) == [
        ("params['w']", 40, 20, 118, 4),
        ("all 1", 40, 20, 118, 4),
    ]
    for name in ("params*", "params['w*", "params[[]*"):
        assert figures(ask(step, donate=[name])) == figures(ask(step, donate=["3"]))


@pytest.mark.slow
def test_donations_and_lines_together(step):
    assert figures(ask(step, "line:a.py:2", donate=["3"]))[-1] == ("all 2", 40, 40, 98, 1)
    assert figures(ask(step, "line:a.py:*", donate=["3"]))[-1] == ("all 3", 90, 50, 88, 4)
    assert figures(ask(step, donate=["3"], until=100)) == [
        ("all 1", 40, 20, 118, 4),
        ("/m/a.py:2", 0, 20, 98, 1),
    ]


@pytest.mark.slow
def test_what_cannot_be_donated_is_said(step):
    answer = ask(step, donate=["*"])
    assert [row.name for row in answer.rows] == ["params['w']", "all 1"]
    assert answer.refused == ["not donated, since donated already: 4 (state)"]
    step.execute("UPDATE allocations SET size_bytes = 41 WHERE kind = 'output'")
    step.execute("UPDATE memory_sums SET fixed_bytes = fixed_bytes + 1")
    answer = ask(step, donate=["3"])
    assert answer.rows == []
    assert answer.refused == [
        "not donated, since no remaining output has its size: 3 (params['w'])"
    ]
    with pytest.raises(UsageError, match=r"no parameter .*did you mean 'params"):
        ask(step, donate=["prams['w']"])


@pytest.mark.slow
def test_an_output_of_the_shape_comes_before_others_of_the_size(con):
    """JAX pairs them like this: without an output of the shape, XLA takes one of the size."""
    wide, tall = shape(con, "f32[2,5]{1,0}"), shape(con, "f32[5,2]{1,0}")
    case = Case(con)
    case.allocation(1, "parameter", 40, parameter_number=0)
    case.value(11, 1, 0, 40, live=(0, 6), name="p", shape=tall, opcode="parameter")
    for number, (text, start) in enumerate(((wide, 7), (tall, 4))):
        case.allocation(2 + number, "output", 40)
        case.value(20 + number, 2 + number, 0, 40, live=(start, STEPS), name="o", shape=text)
    case.temp(1, 50, (5, 5), "/m/a.py:1")
    case.close()
    # The tall one holds 40 bytes when 50 are occupied, before the parameter is free.
    assert figures(ask(con, donate=["0"]))[-1] == ("all 1", 40, 0, 170, 5)
    con.execute('UPDATE "values" SET shape = ? WHERE value_id = 21', [wide])
    assert figures(ask(con, donate=["0"]))[-1] == ("all 1", 40, 40, 130, 5)


# -- what a device must hold -----------------------------------------------------------------------


def with_holes(con, reserved):
    """Values of 64 bytes at 2 and 7, and of 64 that live from the one to the other."""
    case = Case(con)
    case.temp(1, 128, (1, 3), "/m/model.py:53")
    case.temp(2, 64, (3, 6), "/m/model.py:54")
    case.temp(3, 128, (6, 8), "/m/model.py:55")
    case.close()
    con.execute(f"UPDATE memory_sums SET temp_bytes = {reserved}")


@pytest.mark.slow
def test_the_need_is_that_of_the_values_placed_again(con):
    with_holes(con, 192)
    answer = ask(con, "line:model.py:53")
    assert (answer.choice.peak_bytes, answer.choice.need_bytes) == (192, 192)
    assert (answer.need.low_bytes, answer.need.high_bytes) == (192, 192)
    answer = ask(con, "line:model.py:5[35]")
    assert (answer.need.low_bytes, answer.need.high_bytes) == (64, 64)


def test_where_that_does_not_give_todays_size_it_is_a_range(con):
    with_holes(con, 1000)
    answer = ask(con, "line:model.py:5[35]")
    assert (answer.need.low_bytes, answer.need.high_bytes) == (64, 64 + 808)


@pytest.mark.slow
def test_until_goes_by_the_high_end_of_the_need(con):
    with_holes(con, 1000)
    answer = ask(con, until=900)
    assert (answer.fits, bool(answer.rows), answer.need.high_bytes <= 900) == (True, True, True)
    assert ask(con, until=1000).rows == []
    assert ask(con, until=400).fits is False


@pytest.mark.slow
def test_donations_alone_and_together_are_one_rule(demo):
    """memory.donation computes one parameter alone, and all of them together as ranges."""
    from bufdb.what_if import removal
    from bufdb.what_if.module_choice import choose

    compared = 0
    for run, key, color in demo.execute(
        "SELECT run_name, module_key, color FROM memory_figures WHERE peak_bytes IS NOT NULL"
    ).fetchall():
        choice = choose(demo, key, run, color)
        demo_rows = demo.execute(
            "SELECT DISTINCT parameter_number FROM allocations WHERE module_id = ? AND color = ? "
            "AND kind = 'parameter'",
            [choice.module_id, color],
        ).fetchall()
        for (number,) in demo_rows:
            rows = removal.answer(demo, choice, removal.Reduction(donate=[str(number)])).rows
            if len(rows) == 2:
                compared += 1
                assert figures_of(rows[0]) == figures_of(rows[1])
    assert compared > 0


def figures_of(row):
    return row.held_bytes, row.saving_bytes, row.peak_bytes_without, row.next_peak_time


def made(con, value_id, *names):
    """Add the instructions that recomputing a value executes."""
    for name in names:
        insert(con, "recompute_instructions", module_id=1, value_id=value_id, instruction_name=name)


def timed(con, **times):
    """Nanoseconds of each instruction, in a profile of two runs."""
    for name, ns in times.items():
        insert(con, "instruction_times", module_id=1, instruction_name=name, device="CPU:0",
               run_count=2, execution_count=2, total_ns=2 * ns, self_ns=2 * ns)  # fmt: skip


def lines(con):
    """Make three lines; two share a kernel."""
    case = Case(con)
    for number, size in ((1, 60), (2, 50), (3, 40)):
        case.temp(number, size, (1, 3), f"/m/a.py:{number}")
        insert(con, "recompute_costs", module_id=1, value_id=number, operation_count=1000 * number)
    made(con, 1, "fusion.1")
    made(con, 2, "fusion.1")
    made(con, 3, "fusion.3")
    case.close()


@pytest.mark.slow
def test_times_rank_and_a_kernel_counts_once(con):
    lines(con)
    timed(con, **{"fusion.1": 700, "fusion.3": 500})
    answer = ask(con, until=0, is_cheapest_first=True)
    assert answer.ranked_by == "time"
    # 700 ns for 60 bytes; then what the kernel of the first makes, too, for nothing.
    assert [(row.name, row.recompute_ns) for row in answer.rows] == [
        ("/m/a.py:1", 700), ("/m/a.py:2", 700), ("/m/a.py:3", 500)
    ]  # fmt: skip
    (*_, together) = ask(con, "line:a.py:*").rows
    assert (together.recompute_ns, together.operation_count) == (1200, 2000 + 3000)


def test_what_was_not_timed_is_not_the_cheapest(con):
    lines(con)
    timed(con, **{"fusion.3": 500})
    rows = ask(con, until=0, is_cheapest_first=True).rows
    assert [(row.name, row.recompute_ns) for row in rows] == [
        ("/m/a.py:3", 500), ("/m/a.py:1", None), ("/m/a.py:2", None)
    ]  # fmt: skip


def test_without_times_the_work_ranks(con):
    lines(con)
    answer = ask(con, until=0, is_cheapest_first=True)
    assert answer.ranked_by == "work" and answer.rows[0].recompute_ns is None


@pytest.mark.slow
def test_stacks_take_time_and_layer_inputs_none(con):
    case = Case(con)
    for number in (1, 2):
        case.temp(number, 60, (1, 3))
        case.origin(number, "/m/a.py:1", op_name="jit(f)/jvp()/while/body/dot", slice_count=10,
                    written_by=f"update.{number}", is_layer_input=number == 2)  # fmt: skip
        insert(con, "recompute_parts", module_id=1, written_by=f"update.{number}",
               part_kind="all_again", part_index=number, saving_form="wrap",
               operation_count=500 if number == 1 else 0)  # fmt: skip
    case.temp(3, 60, (1, 3))
    # The sum of a gradient, which the backward pass stacks by the same line.
    case.origin(3, "/m/a.py:1", op_name="jit(f)/transpose(jvp())/dot", slice_count=10)
    case.close()
    for value_id, name, ns in ((1, "dot.1", 700), (3, "dot.3", 9000)):
        insert(con, "recompute_instructions", module_id=1, value_id=value_id,
               instruction_name=name, is_low=False)  # fmt: skip
        insert(con, "instruction_times", module_id=1, instruction_name=name, device="CPU:0",
               run_count=1, execution_count=1, total_ns=ns, self_ns=ns)  # fmt: skip
    assert ask(con, "line:saved /m/a.py:1").rows[0].recompute_ns == 700
    sql = "SELECT recompute_ns FROM recompute_times WHERE what = 'source_line'"
    assert con.execute(sql).fetchall() == [(700,)]
