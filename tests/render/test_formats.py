"""Results as text."""

import csv
import io
import json
from datetime import datetime
from decimal import Decimal

import pytest

from bufdb.query.result import Result
from bufdb.render.formats import render
from bufdb.render.text import (
    escape_control,
    human_apart,
    human_bytes,
    markdown_escape,
    shorten,
    terminal_safe,
)

RESULT = Result(
    [("name", "VARCHAR"), ("size_bytes", "HUGEINT"), ("held_ratio", "DOUBLE"), ("n", "BIGINT")],
    [("a|b", 2**24, 0.125, 7), (None, None, None, None), ("", 2**63, 1.0, 12)],
)


def text(result, format_name, width=None):
    return render(result, format_name, width)[0]


def test_table_shows_units_and_aligns_numbers_right():
    assert text(RESULT, "table") == (
        "name  size_bytes  held_ratio   n\n"
        "----  ----------  ----------  --\n"
        "a|b     16.0 MiB       12.5%   7\n"
        "-              -           -   -\n"
        "        8.00 EiB      100.0%  12\n"
    )


def test_markdown_shows_units_and_escapes_bars():
    assert text(RESULT, "markdown") == (
        "| name | size\\_bytes | held\\_ratio | n |\n".replace("\\_", "_")
        + "| --- | ---: | ---: | ---: |\n"
        "| a\\|b | 16.0 MiB | 12.5% | 7 |\n"
        "| - | - | - | - |\n"
        "|  | 8.00 EiB | 100.0% | 12 |\n"
    )


def test_csv_is_exact_and_distinguishes_null_from_empty():
    assert text(RESULT, "csv") == (
        'name,size_bytes,held_ratio,n\na|b,16777216,0.125,7\n,,,\n"",9223372036854775808,1.0,12\n'
    )


def test_csv_quotes_so_that_a_reader_gets_the_text_back():
    cells = ['a"b', "a,b", "a\nb", " a ", "a\r", "x"]
    result = Result([(f"c{i}", "VARCHAR") for i in range(len(cells))], [tuple(cells)])
    assert list(csv.reader(io.StringIO(text(result, "csv"), newline="")))[1] == cells


def test_json_is_exact_and_null_is_null():
    rows = json.loads(text(RESULT, "json"))
    assert rows[0] == {"name": "a|b", "size_bytes": 2**24, "held_ratio": 0.125, "n": 7}
    assert rows[1] == {"name": None, "size_bytes": None, "held_ratio": None, "n": None}
    assert rows[2]["size_bytes"] == 2**63
    assert [json.loads(line) for line in text(RESULT, "jsonl").splitlines()] == rows


def test_values_of_other_types():
    result = Result(
        [("t", "TIMESTAMP"), ("d", "DECIMAL(5,2)"), ("l", "BIGINT[]"), ("s", "STRUCT(a INTEGER)"),
         ("b", "BOOLEAN"), ("f", "DOUBLE")],
        [(datetime(2026, 1, 2, 3), Decimal("1.50"), [1, None], {"a": 1}, True, float("nan"))],
    )  # fmt: skip
    assert text(result, "csv").splitlines()[1] == (
        '2026-01-02 03:00:00,1.50,"[1, null]","{""a"": 1}",true,nan'
    )
    assert json.loads(text(result, "json")) == [
        {"t": "2026-01-02 03:00:00", "d": "1.50", "l": [1, None], "s": {"a": 1}, "b": True,
         "f": None}
    ]  # fmt: skip


def test_json_keeps_both_of_two_columns_named_alike():
    result = Result([("a", "BIGINT"), ("a", "BIGINT")], [(1, 2)])
    assert text(result, "jsonl") == '{"a": 1, "a_dup1": 2}\n'


@pytest.mark.parametrize("format_name", ["table", "csv", "json", "jsonl", "markdown"])
def test_no_rows(format_name):
    expected = {
        "table": "a\n-\n",
        "csv": "a\n",
        "json": "[]\n",
        "jsonl": "",
        "markdown": "| a |\n| ---: |\n",
    }
    assert text(Result([("a", "BIGINT")], []), format_name) == expected[format_name]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1152, "1.12 KiB"),
        (10234, "9.99 KiB"),
        (10239, "10.0 KiB"),
        (102348, "99.9 KiB"),
        (102399, "100 KiB"),
        (1047552, "1023 KiB"),
        (1048575, "1.00 MiB"),
        (-1536, "-1.50 KiB"),
        (2**63, "8.00 EiB"),
        (2**100, "1048576 YiB"),
    ],
)
def test_human_bytes(count, shown):
    assert human_bytes(count) == shown


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([1213333504, 1158703513], ["1.13 GiB", "1.08 GiB"]),
        ([1213333504, 1212333504], ["1.130 GiB", "1.129 GiB"]),
        ([2**30, 2**30 + 1], ["1073741824 B", "1073741825 B"]),
        ([2**30, 2**30], ["1.00 GiB", "1.00 GiB"]),
    ],
)
def test_sizes_that_differ_look_different(counts, shown):
    assert human_apart(counts) == shown


def test_a_row_shows_that_its_sides_differ():
    names = ("base_bytes", "new_bytes", "peak_bytes", "peak_bytes_without", "slope_bytes")
    columns = [(name, "HUGEINT") for name in names]
    text, _ = render(Result(columns, [(2**30, 2**30 - 2**20, None, 2**20, 1.5e6)]), "markdown")
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["1.00 GiB", "1023 MiB", "-", "1.00 MiB", "1.43 MiB"]


@pytest.mark.parametrize(
    ("name", "ratio", "shown"),
    [
        ("delta_ratio", 0.614, "61.4%"),
        ("delta_ratio", 85596.714, "×85,600"),
        ("delta_ratio", 10.0, "×11.0"),
        ("limit_ratio", 75607955.0, "×75,600,000"),
        ("headroom_ratio", -556597.3, "-×557,000"),
        ("limit_ratio", 1.2, "120.0%"),
        ("limit_ratio", float("inf"), "inf%"),
    ],
)
def test_a_ratio_far_above_one_is_a_factor(name, ratio, shown):
    text, _ = render(Result([(name, "DOUBLE")], [(ratio,)]), "markdown")
    assert text.splitlines()[-1] == f"| {shown} |"


def test_a_terminal_gets_no_control_characters():
    assert escape_control("a\x1b[31m\nb\x9b\u202e\u2028é…") == "a\\x1b[31m\\nb\\x9b\\u202e\\u2028é…"
    result = Result([("a", "VARCHAR")], [("x\ty\n",)])
    assert text(result, "table").splitlines()[2] == "x\\ty\\n"


def test_markdown_keeps_names_readable():
    assert markdown_escape("train_step __call__ <lambda> [bytes] [a](b)") == (
        "train_step \\_\\_call\\_\\_ \\<lambda\\> [bytes] [a\\](b)"
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("@user", "@&#8203;user"),
        ("a/b#12", "a/b#&#8203;12"),
        ("GH-12", "GH-&#8203;12"),
        ("!12 %3", "!&#8203;12 %&#8203;3"),
        ("https://a.b", "https:&#8203;//a.b"),
        ("www.a.b", "www&#8203;.a.b"),
        ("<img src=x>", "\\<img src=x\\>"),
        ("![a](b)", "![a\\](b)"),
        ("[a][b]", "[a\\][b]"),
        ("~~a~~ $b$ &lt;", "\\~\\~a\\~~ \\$b\\$ \\&lt;"),
        ("%fusion.1 f32[2]{0} a ~ b & c", "%fusion.1 f32[2]{0} a ~ b & c"),
    ],
)
def test_markdown_mentions_no_user_and_links_nothing(name, shown):
    assert markdown_escape(name) == shown


def test_a_terminal_gets_json_that_is_json():
    result = Result([("a\x9b", "VARCHAR")], [("\x1b[31m\x7f\u202e\n\u00e9",)])
    for format_name in ("json", "jsonl"):
        exact = render(result, format_name)[0]
        shown = terminal_safe(exact)
        assert json.loads(shown) == json.loads(exact)
        assert "\x7f" in exact and not any(char in shown for char in "\x7f\x9b\x1b\u202e")
    assert terminal_safe("a\tb\r\n\u00e9") == "a\tb\\u000d\n\u00e9"


def test_the_middle_is_cut_and_the_end_kept():
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijklm", 10) == "abc…hijklm"
    assert shorten("漢字漢字漢字", 7) == "漢…漢字"


def test_wide_characters_take_two_columns():
    result = Result([("a", "VARCHAR"), ("b", "VARCHAR")], [("漢字", "x"), ("abc", "y")])
    assert text(result, "table").splitlines()[2:] == ["漢字  x", "abc   y"]
