"""Each name that `savings` shows is one that `what-if` removes, with the same saving."""

from contextlib import closing

import pytest
from small_db import Module, rows

from bufdb.answers import opening
from bufdb.what_if.what_if import what_if

KINDS = {"source_line": "line", "op": "op", "value": "value"}


def savings(con, **fields):
    """Rows of the query that are a name."""
    all_rows = rows(con, "savings", top_n=1000, top_functions=100, color="all", **fields)
    return [row for row in all_rows if row["what"] is not None]


@pytest.mark.sample(0, 8)
@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("run", ["gpu_b8", "tpu_b8"])
def test_each_name_saves_what_the_query_shows(demo_db, run, first):
    with closing(opening.open_readable(str(demo_db))) as con:
        shown = savings(con, run=run, function="train_step")
        assert {row["what"] for row in shown} == set(KINDS)
        for row in shown[first::8]:  # from lines to values, each a change of half a second
            name = f"{KINDS[row['what']]}:{row['name']}"
            answer = what_if(
                lambda *_, **__: con, "train_step", run=run, without=name, color=row["color"]
            ).answer
            saved = [(one.held_bytes, one.saving_bytes) for one in answer.rows[:-1]]
            assert saved == [(row["held_bytes"], row["saving_bytes"])], name


def test_elements_of_one_shape_have_names_of_their_own(con):
    module = Module(con, 1, schedule_length=9, peak_unknown_reason=None)
    module.allocation(0, "temp", 100)
    for number, index in enumerate(("{}", "{0}", "{1}")):
        module.value(number, 0, number * 8, 8, (0, 5), "pair", "f32[2]{0}", shape_index=index)
        module.saves(number, 8, 4)
    module.close()
    assert [row["name"] for row in savings(con)] == [
        "pair f32[2]{0}", "pair{0} f32[2]{0}", "pair{1} f32[2]{0}"
    ]  # fmt: skip
