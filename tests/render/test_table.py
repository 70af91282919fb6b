"""Tables fit the terminal without losing a figure."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb import resources
from bufdb.commands import common
from bufdb.query import catalogue, execute
from bufdb.query.result import Result
from bufdb.render import FORMATS, formats
from bufdb.render.table import SMALLEST_START, give_way, least
from bufdb.render.text import display_width, use_colour

QUERIES = catalogue.Catalogue([resources.query_folder()]).load_all()
ASKED = {"base": "cpu_b8", "new": "cpu_b16", "label": "batch"}
"""Arguments that some queries need for an answer with rows over the demo dumps."""


def table(columns, rows, width=80, **others):
    result = Result([(name, kind) for name, kind in columns.items()], rows)
    return formats.render(result, "table", width, has_titles=True, **others)[0].splitlines()


@pytest.mark.sample(20)
@pytest.mark.parametrize("width", [80, 132])
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_every_answer_over_the_demo_dumps_fits_with_all_figures(demo, query, width):
    values = {name: text for name, text in ASKED.items() if query.param(name) is not None}
    result = execute.execute_query(demo, query, execute.bind(query, values))
    fitted, _ = formats.render(result, "table", width, has_titles=True)
    assert max(map(display_width, fitted.splitlines())) <= width
    shown = {cell.strip() for cell in re.split(r"  +|\n| · ", fitted)}
    for name, text in figures(result):
        assert text in shown or f"{name} {text}" in shown


def figures(result):
    """Each cell that may not be shortened, with the name that it has in a title."""
    columns, _ = formats._columns(result, has_titles=False)
    for column in columns:
        if not column.is_text:
            short = column.name.removesuffix("_bytes")
            yield from ((short, text) for text in column.body if text != "-")


TEXTS = st.text(st.sampled_from("ab/.漢 _[{,}]"), max_size=90)


@pytest.mark.slow
@given(st.data(), st.integers(24, 120))
def test_no_figure_is_lost_whatever_the_width(data, width):
    kinds = data.draw(st.lists(st.sampled_from(["VARCHAR", "BIGINT"]), min_size=1, max_size=14))
    ends = ["name", "op_name", "shape", "source", "unknown_reason", "module_key", "count"]
    columns = {f"c{i}_{data.draw(st.sampled_from(ends))}": kind for i, kind in enumerate(kinds)}
    numbers = iter(range(10**9, 10**9 + 1000))
    rows = [
        tuple(data.draw(TEXTS) if kind == "VARCHAR" else next(numbers) for kind in kinds)
        for _ in range(data.draw(st.integers(0, 9)))
    ]
    lines = table(columns, rows, width)
    assert max(map(display_width, lines)) <= width
    words = re.findall(r"[0-9]{10}", "\n".join(lines))
    assert sorted(map(int, words)) == [
        cell for row in rows for cell in row if isinstance(cell, int)
    ]


def test_a_title_line_with_a_long_name_fits_too():
    columns = {"c0_name": "VARCHAR", "c1_unknown_reason": "VARCHAR"}
    lines = table(columns, [("a", "b" * 7), ("c", "b" * 7)], width=24)
    assert lines[0].startswith("c1_unknown_reason b")
    assert max(map(display_width, lines)) <= 24


def test_equal_cells_move_to_a_title_line():
    columns = {"run_name": "VARCHAR", "peak_bytes": "BIGINT", "source": "VARCHAR", "n": "BIGINT"}
    assert table(columns, [("a", 2**20, None, 1), ("a", 2**20, None, 2)]) == [
        "run a · peak 1.00 MiB · no source · in each of 2 rows",
        "n",
        "-",
        "1",
        "2",
    ]


def test_what_only_looks_alike_stays_a_column():
    lines = table({"size_bytes": "BIGINT", "n": "BIGINT"}, [(2**20, 1), (2**20 + 1, 1)], None)
    assert lines[0] == "n 1 · in each of 2 rows"
    assert lines[1:] == ["size_bytes", "----------", "  1.00 MiB", "  1.00 MiB"]


def test_equal_rows_stay_a_table_and_a_single_row_has_no_title():
    assert table({"n": "BIGINT"}, [(1,), (1,)]) == ["n", "-", "1", "1"]
    assert table({"n": "BIGINT", "m": "BIGINT"}, [(1, 2)]) == ["n  m", "-  -", "1  2"]


def test_groups_of_wide_rows_get_titles():
    columns = {"run_name": "VARCHAR", "peak_bytes": "BIGINT", "n": "BIGINT", "name": "VARCHAR"}
    rows = [("r1", 1024, n, "x") for n in range(3)] + [("r2", 2048, n, "y") for n in range(3)]
    assert table(columns, rows, 24) == [
        "n  name",
        "-  ----",
        "run r1 · peak 1.00 KiB",
        "3 rows",
        "0  x",
        "1  x",
        "2  x",
        "",
        "run r2 · peak 2.00 KiB",
        "3 rows",
        "0  y",
        "1  y",
        "2  y",
    ]
    assert table(columns, rows, 80)[0] == "run_name  peak_bytes  n  name"


def test_names_of_columns_are_folded_before_a_text_is_shortened():
    columns = {"saving_bytes": "BIGINT", "value_count": "BIGINT", "name": "VARCHAR"}
    assert table(columns, [(1, 2, "abcdefgh"), (3, 4, "ijklmnop")], 25) == [
        "saving_  value_",
        "  bytes   count  name",
        "-------  ------  --------",
        "    1 B       2  abcdefgh",
        "    3 B       4  ijklmnop",
    ]


def test_a_row_takes_several_lines_before_a_figure_is_cut():
    columns = {"a": "BIGINT", "name": "VARCHAR", "b": "BIGINT"}
    assert table(columns, [(10**9, "x", 10**9 + 1), (10**9 + 2, "y", 10**9 + 3)], 24) == [
        "         a  name",
        "           b",
        "----------------",
        "1000000000  x",
        "  1000000001",
        "1000000002  y",
        "  1000000003",
    ]


def test_a_figure_wider_than_the_terminal_is_there_in_full():
    columns = {"count": "HUGEINT", "name": "VARCHAR"}
    lines = table(columns, [(10**37, "x" * 30), (10**36, "y")], 24)
    assert [lines[3], lines[5]] == [str(10**37), " " + str(10**36)]


def test_a_single_row_that_does_not_fit_is_set_out_by_name():
    columns = {"a_name": "VARCHAR", "n_bytes": "BIGINT"}
    assert table(columns, [("one two three four", 2048)], 24) == [
        "a_name   one two three",
        "         four",
        "n_bytes  2.00 KiB",
    ]


def test_why_a_row_is_unknown_is_below_it_in_full():
    columns = {"name": "VARCHAR", "n_bytes": "BIGINT", "unknown_reason": "VARCHAR"}
    assert table(columns, [("a", None, "there is no HLO text"), ("b", 5, None)], 24) == [
        "name  n_bytes",
        "----  -------",
        "a           -",
        "  unknown_reason: there",
        "  is no HLO text",
        "b         5 B",
    ]


def test_a_title_gives_way_too():
    columns = {"run_name": "VARCHAR", "name": "VARCHAR", "n": "BIGINT"}
    lines = table(columns, [("r", "a" * 90, 1), ("r", "a" * 90, 2)], 40)
    title = f"name {'a' * 11}…{'a' * 23}"
    assert lines[:3] == ["run r", title, "in each of 2 rows"] and len(title) == 40


def test_rows_out_of_order_are_in_no_groups():
    columns = {"run_name": "VARCHAR", "name": "VARCHAR", "size_bytes": "BIGINT"}
    runs = [run for run in "aba" for _ in range(3)]
    rows = [(run, f"{number}{'x' * 40}", number) for number, run in enumerate(runs)]
    assert not any(line.startswith("run a") for line in table(columns, rows, 40))
    assert any(line.startswith("run a") for line in table(columns, sorted(rows), 40))


def test_a_column_of_sql_without_a_name_gives_way():
    columns = {"max(size_bytes) + min(offset_bytes)": "BIGINT", "b": "BIGINT"}
    assert table(columns, [(10**15, 1), (7, 2)], 24)[:2] == [
        "max(siz…(offset_",
        "          bytes)  b",
    ]


def test_a_call_stack_keeps_its_start():
    text = "train.py:53 f < model.py:7 g < layer.py:9 h"
    assert least("call_stack", text) == SMALLEST_START
    assert least("call_stack", "a.py:1") == 6


@pytest.mark.parametrize(
    ("column", "text", "width", "shown"),
    [
        ("shape", "f32[8,100]{1,0:T(8,128)}", 20, "f32[8,100]"),
        ("out_shape", "(f32[8,100]{1,0}, s32[4])", 14, "(f32[8,100], …"),
        ("source", "/home/user/model/train.py:65", 20, "…/model/train.py:65"),
        ("source", "saved /home/user/model/train.py:65", 20, "saved …/train.py:65"),
        ("source", "library flax/linen/linear.py:271", 24, "library …/linear.py:271"),
        ("source", "saved library flax/linen/linear.py:271", 30, "saved library …/linear.py:271"),
        ("source", "/home/user/model/a_long_name_of_a_file.py:65", 12, "…_file.py:65"),
        ("op_name", "jit(f)/jvp()/while/body/dot_general", 24, "…/while/body/dot_general"),
        ("module_key", "module_0002.jit_f.cpu_after_optimizations", 20, "module_0002.jit_f.c…"),
        ("call_stack", "a.py:1 f < b.py:2 g < c.py:3 h", 20, "a.py:1 f < b.py:2 g…"),
        ("name", "bitcast_dynamic-update-slice_fusion.2", 20, "bitcas…lice_fusion.2"),
        ("message", "neither here/nor there is a path", 20, "neithe…ere is a path"),
        ("name", "漢/字漢字漢", 6, "…字漢"),
    ],
)
def test_the_most_specific_part_of_a_text_stays(column, text, width, shown):
    assert give_way(column, text, width) == shown
    assert display_width(shown) <= width


# -- colors ----------------------------------------------------------------------------------------

SHIFT = {"peak_change_bytes": "BIGINT", "unknown_reason": "VARCHAR"}


def test_colours_say_what_grew_shrank_and_is_unknown():
    lines = table(SHIFT, [(-5, None), (5, None), (0, None), (None, "why")], is_coloured=True)
    assert lines[2:] == [
        "             \x1b[32m-5 B\x1b[0m  -",
        "              \x1b[31m5 B\x1b[0m  -",
        "              0 B  -",
        "                -  \x1b[33mwhy\x1b[0m",
    ]


def test_colours_apart_it_is_the_same_table():
    rows = [(-5, None), (5, "b"), (0, None)]
    coloured = table(SHIFT, rows, is_coloured=True)
    assert [re.sub("\x1b\\[[0-9]+m", "", line) for line in coloured] == table(SHIFT, rows)


def test_a_name_brings_no_colour_of_its_own():
    lines = table({"severity": "VARCHAR", "x": "VARCHAR"}, [("error", "\x1b[31mred")] * 2 + [
        ("notice", "\x9b31mred")], is_coloured=True)  # fmt: skip
    assert "\\x1b[31mred" in lines[2] and "\\x9b31mred" in lines[4]
    assert {match for line in lines for match in re.findall("\x1b\\[[0-9]+m", line)} == {
        "\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m"}  # fmt: skip
    assert "\x9b" not in "".join(lines)


class Stream(io.TextIOWrapper):
    def __init__(self, is_terminal):
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environment", "is_wanted"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_there_is_no_colour_in_a_pipe_or_with_no_color(
    is_terminal, environment, is_wanted, monkeypatch
):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert use_colour(Stream(is_terminal), environment) is is_wanted
    for form in FORMATS:
        out = Stream(is_terminal)
        monkeypatch.setattr("sys.stdout", out)
        result = Result([("severity", "VARCHAR"), ("n", "BIGINT")], [("error", 1), ("error", 2)])
        common.emit(result, format_name=form, output=None, full=None)
        has_escapes = b"\x1b" in out.buffer.getvalue()
        assert has_escapes is (is_wanted and form == "table")


# -- bars ------------------------------------------------------------------------------------------


def test_bars_take_the_room_that_is_left():
    columns = {"held_bytes": "BIGINT", "held_ratio": "DOUBLE", "name": "VARCHAR"}
    rows = [(75, 0.75, "first"), (25, 0.25, "second")]
    assert table(columns, rows, 50, has_bars=True) == [
        "held_bytes  held_ratio                  name",
        "----------  ----------  --------------  ------",
        "      75 B       75.0%  █████████████▌  first",
        "      25 B       25.0%  ████▌           second",
    ]
    assert table(columns, rows, 41, has_bars=True) == table(columns, rows, 41)
    assert table(columns, rows, None, has_bars=True) == table(columns, rows, None)
    assert table(columns, rows[:1], 80, has_bars=True) == table(columns, rows[:1])


def test_bytes_in_falling_order_have_bars_next_to_the_largest():
    columns = {"size_bytes": "BIGINT", "n": "BIGINT"}
    assert table(columns, [(8, 1), (4, 2), (0, 3)], has_bars=True)[2:] == [
        "       8 B  ██████████████████████  1",
        "       4 B  ███████████             2",
        "       0 B                          3",
    ]
    for rows in ([(4, 1), (8, 2)], [(0, 1), (0, 2)], [(None, 1), (None, 2)], [(8, 1), (-1, 2)]):
        assert table(columns, rows, has_bars=True) == table(columns, rows)


@pytest.mark.parametrize("shares", [(0.5, 1.5), (0.5, -0.5), (0.0, 0.0), (None, None)])
def test_what_is_no_share_has_no_bars(shares):
    rows = [(shares[0], 1), (shares[1], 2)]
    columns = {"held_ratio": "DOUBLE", "n": "BIGINT"}
    assert table(columns, rows, has_bars=True) == table(columns, rows)
    changes = {"delta_ratio": "DOUBLE", "n": "BIGINT"}
    assert table(changes, [(0.5, 1), (0.25, 2)], has_bars=True) == table(
        changes, [(0.5, 1), (0.25, 2)]
    )


@pytest.mark.parametrize("format_name", ["csv", "json", "jsonl", "markdown"])
def test_other_formats_have_no_bars(format_name):
    result = Result([("held_ratio", "DOUBLE"), ("n", "BIGINT")], [(0.5, 1), (0.25, 2)])
    with_bars = formats.render(result, format_name, 80, has_bars=True)
    assert with_bars == formats.render(result, format_name, 80)


@pytest.mark.slow
@given(st.data(), st.integers(24, 160))
def test_bars_cost_no_figure_and_no_line(data, width):
    """Nothing at all where all texts are whole; else texts alone, which stay in their lines."""
    kinds = {"op_name": "VARCHAR", "held_ratio": "DOUBLE", "size_bytes": "BIGINT", "n": "BIGINT"}
    names = data.draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, unique=True))
    draws = {
        "VARCHAR": TEXTS,
        "DOUBLE": st.floats(0, 1) | st.none(),
        "BIGINT": st.integers(0, 2**50),
    }
    rows = [
        tuple(data.draw(draws[kinds[name]]) for name in names)
        for _ in range(data.draw(st.integers(1, 5)))
    ]
    result = Result([(name, kinds[name]) for name in names], rows)
    without, cut = formats.render(result, "table", width)
    barred, cut_too = formats.render(result, "table", width, has_bars=True)
    assert max(map(display_width, barred.splitlines())) <= max(24, width)
    assert barred.count("\n") == without.count("\n") and (cut_too == 0 or cut > 0)
    words = [
        re.sub("[█▏▎▍▌▋▊▉]+", "", text).replace("-", " ").split() for text in (barred, without)
    ]
    figures = [[word for word in some if word[0].isdigit()] for some in words]
    assert figures[0] == figures[1] and (cut or words[0] == words[1])


def test_texts_that_give_way_give_way_for_bars_too():
    columns = {"held_ratio": "DOUBLE", "op_name": "VARCHAR"}
    rows = [(0.5, "/".join(["scope"] * 30) + "/dot"), (0.25, "add")]
    assert table(columns, rows, 60, has_bars=True) == [
        "held_ratio         op_name",
        "----------  -----  ------------------------------------",
        "     50.0%  █████  …/scope/scope/scope/scope/scope/dot",
        "     25.0%  ██▌    add",
    ]
