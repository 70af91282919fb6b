"""Answers about many functions: ranked in SQL, and only what is shown is fetched."""

import csv
import io
import json
from contextlib import nullcontext
from unittest import mock

import pytest
from small_db import Module, derive, in_bulk

from bufdb.answers import diff
from bufdb.api.assistant import Tools
from bufdb.api.database import Readable
from bufdb.export import export as exports
from bufdb.page import comparison, contents, page, tables
from bufdb.query.catalogue import Catalogue
from bufdb.query.execute import execute_query
from bufdb.resources import query_folder

SIDES = ("cpu_b8", "cpu_b16")


@pytest.fixture
def small_spans(monkeypatch):
    """Parts are computed pair by pair."""
    monkeypatch.setattr(diff, "AT_ONCE", 1)


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize(
    ("key", "form"),
    [("op", "table"), ("source", "csv"), ("stack", "json"), ("category", "jsonl")],
)
def test_a_comparison_in_spans_says_what_it_says_in_one(call, demo_db, monkeypatch, key, form):
    words = ("diff", *SIDES, "--by", key, "--format", form, "--db", demo_db)
    whole = call(*words)
    assert whole[0] == 0 and whole[1]
    monkeypatch.setattr(diff, "AT_ONCE", 1)
    assert call(*words) == whole


@pytest.mark.slow
def test_rows_in_pieces_are_one_answer(call, demo_db, small_spans, tmp_path):
    words = ("diff", *SIDES, "--function", "[ei]*", "--db", demo_db)
    rows = list(csv.DictReader(io.StringIO(call(*words, "--format", "csv")[1])))
    assert len(json.loads(call(*words, "--format", "json")[1])) == len(rows) > 20
    out = tmp_path / "a.json"
    assert call(*words, "--format", "jsonl", "-o", out) == (0, "", "")
    assert out.read_text().count("\n") == len(rows)
    assert call(*words, "--function", "no such", "--format", "json")[1] == "[]\n"


def many(con, pairs, same=0):
    """Pairs of functions, each larger by another number of bytes; the last are the same."""
    with in_bulk(con):
        for number in range(pairs):
            for side, run in enumerate("ab"):
                module = Module(con, 2 * number + side, run, f"f{number}")
                grown = 0 if number >= pairs - same else side * (number + 1)
                module.allocation(0, "temp", 100_000 + grown)
                module.value(0, 0, 0, 100_000 + grown, op_name=f"jit(f)/dot_{number}")
                module.close()
    derive(con)


@pytest.mark.slow
def test_of_pairs_that_are_not_shown_the_peak_alone_is_fetched(con, small_spans):
    many(con, 12, same=2)
    values = {"base": "a", "new": "b", "key_name": "op"}
    compared = diff.compare_top(con, values, 2)
    assert len([row for row in compared.figures if row.figure == "peak"]) == 12
    assert {row.place for row in compared.figures if row.figure != "peak"} == {1, 2, 3}
    assert {row.place for row in compared.peak_parts} == {1, 2, 3}
    assert (compared.more_places, compared.is_least) == (7, True)
    left = con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
    assert left == [(0,)]


@pytest.mark.slow
def test_python_and_assistants_get_what_their_text_shows(con):
    many(con, 12)
    opener = mock.Mock(path="x")
    opener.several.return_value = nullcontext(lambda *_, **__: con)
    db = Readable(opener)
    data = db.diff("a", "b", top=4).data
    assert sum(row["figure"] == "peak" and row["part"] is None for row in data) == 12
    assert {row["place"] for row in data if row["part"] is not None} == {1, 2, 3, 4}
    lines = Tools(db).diff("a", "b", max_rows=5).splitlines()
    assert lines[8] == "(more rows; max_rows gives more)" and len(lines) == 11


@pytest.mark.slow
def test_pairs_beyond_those_of_a_page_are_said_to_be_left_out(con, monkeypatch):
    many(con, 5)
    monkeypatch.setattr(comparison, "MOST_PLACES", 2)
    compared = comparison.compared(con, "a", {"run": "b"})
    assert compared.is_cut
    assert {row.place for row in compared.figures} == {1, 2}
    assert {row.place for row in compared.parts["op"]} == {1, 2}
    monkeypatch.setattr(comparison, "MOST_PLACES", 5)
    assert not comparison.compared(con, "a", {"run": "b"}).is_cut


def reported(call, demo_db, out, names):
    with mock.patch.object(tables, "NAMES", names):
        assert call("report", "--run", "cpu_b8", "--db", demo_db, "-o", out)[0] == 0
    return out.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("peak", "top-values", "constants"), id="some"),
        pytest.param(tables.NAMES, id="all", marks=pytest.mark.by_hand),
    ],
)
def test_a_page_in_parts_is_that_of_all_at_once(call, demo_db, monkeypatch, tmp_path, names):
    whole = reported(call, demo_db, tmp_path / "a.html", names)
    monkeypatch.setattr(contents, "MODULES_AT_ONCE", 2)
    assert reported(call, demo_db, tmp_path / "a.html", names) == whole


@pytest.mark.slow
def test_modules_that_find_no_room_in_a_row_end_the_search(call, demo_db, monkeypatch, tmp_path):
    monkeypatch.setattr(contents, "MODULES_AT_ONCE", 1)
    monkeypatch.setattr(page, "LEAST_BYTES", -(10**9))
    calls = []
    answers = contents._answers
    monkeypatch.setattr(
        contents, "_answers", lambda *args, **how: calls.append(1) or answers(*args, **how)
    )
    little = page.page.__kwdefaults__ | {"budget": 1}
    monkeypatch.setattr(page.page, "__kwdefaults__", little)
    monkeypatch.setattr(page, "MOST_IN_VAIN", 1)
    # The first is on the page whatever it takes, the second is in vain, the third is not read.
    reported(call, demo_db, tmp_path / "a.html", ("peak",))
    assert len(calls) == 2


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("form", ["torch-snapshot", "speedscope", "perfetto"])
def test_a_picture_of_copied_rows_is_that_of_the_tables(call, demo_db, monkeypatch, tmp_path, form):
    def drawn(name):
        out = tmp_path / name
        assert call("export", "--format", form, "--db", demo_db, "-o", out)[0] == 0
        return out.read_bytes()

    monkeypatch.setattr(exports, "LEAST_FUNCTIONS", 10**6)
    whole = drawn("a")
    monkeypatch.setattr(exports, "LEAST_FUNCTIONS", 1)
    assert drawn("b") == whole


def test_constants_that_all_programs_share_are_counted_once(con):
    with in_bulk(con):
        for number in range(30):
            module = Module(con, number, "r", f"f{number}")
            module.allocation(0, "constant", 8)
            module.value(0, 0, 0, 8, shape="f32[2]", opcode="constant", text=TEXT)
            module.close()
    derive(con)
    query = Catalogue([query_folder()]).find("constants")
    names = [name for name, _ in execute_query(con, query, {"top_n": 5}).columns]
    rows = execute_query(con, query, {"top_n": 5}).rows
    assert {row[names.index("program_count")] for row in rows} == {30}
    # One row to join with, where each had been joined with each.
    counts = con.execute("SELECT literal, program_count FROM literal_programs").fetchall()
    assert counts == [("{1, 2}", 30)]


TEXT = "%v0 = f32[2]{0} constant({1, 2})"
