"""The scanner: steps of a cursor, text columns, and that one line disturbs no other."""

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bufdb.columnar.rows import Labels, objects, rows_of, strings
from bufdb.columnar.scan import PAD, Block, Cursor, Numbers, Text, runs_of, starts_with, take
from bufdb.ingest.writer import Batches, TableSchema


def cursor(*lines: bytes) -> Cursor:
    block = Block(b"".join(line + b"\n" for line in lines))
    return block.cursor(np.arange(len(block)))


def failed(c: Cursor) -> dict[int, tuple[int, str]]:
    """Column (from 0) and what was expected there, by line."""
    return {row: (at - int(c.block.starts[row]), what) for row, at, what in c.failures()}


def texts(*values: bytes) -> Text:
    return cursor(*values).rest()


def read_back(column, data_type="VARCHAR", misfits=()):
    """A column of a round as DuckDB has it after an insert."""
    schema = TableSchema.of({"n": "BIGINT", "x": data_type})
    rows, odd = rows_of({"n": np.arange(len(column)), "x": column}, schema.types)
    assert odd == [(row, "x") for row in misfits]
    batches = Batches([schema.batch(rows)])  # noqa: F841
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t (n BIGINT, x {data_type})")
        con.execute("INSERT INTO t BY NAME SELECT * FROM batches")
        return [x for (x,) in con.execute("SELECT x FROM t ORDER BY n").fetchall()]


# -- blocks -----------------------------------------------------------------------------------


def test_a_block_is_lines_without_their_ends():
    block = Block(b"a\n\n", b"", b"long line\n")
    assert [block.line(number) for number in range(len(block))] == [b"a", b"", b"long line"]


def test_a_block_may_be_a_part_of_some_bytes():
    block = Block.within(b"above\na\n\nlong line\nbelow" + PAD, 6, 19)
    assert [block.line(number) for number in range(len(block))] == [b"a", b"", b"long line"]
    assert block.starts.tolist() == [6, 8, 9]
    assert block.cursor(np.arange(3)).rest().tolist() == [b"a", b"", b"long line"]


def test_a_block_may_be_empty():
    assert len(Block()) == len(Block(b"")) == 0
    assert Block().cursor(np.arange(0)).integer().tolist() == []


def test_split_begins_lines_inside_lines():
    block = Block(b"one<two\nthree<four<five\n")
    block.split(np.array([18, 3, 13]))
    lines = [block.line(number) for number in range(len(block))]
    assert lines == [b"one", b"<two", b"three", b"<four", b"<five"]


def test_heads_distinguish_prefixes_of_up_to_eight_bytes():
    heads = Block(b" value: x\n value\n value; x\n").heads()
    assert starts_with(heads, b" value: ").tolist() == [True, False, False]
    assert starts_with(heads, b" ").tolist() == [True, True, True]


def test_runs_of_says_which_line_is_above():
    assert runs_of(np.array([1, 3]), 5).tolist() == [-1, 0, 0, 1, 1]
    assert runs_of(np.array([], np.int64), 2).tolist() == [-1, -1]


# -- numbers ----------------------------------------------------------------------------------

DIGITS = [int("1234567890123456789"[:n]) for n in range(1, 20)]


def test_integers_of_every_length():
    c = cursor(*(b"%d" % number for number in [0, *DIGITS, 99999999, 2**62, 2**63 - 1]))
    assert c.integer().tolist() == [0, *DIGITS, 99999999, 2**62, 2**63 - 1]
    c.finish()
    assert c.problems == {}


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from(["", ":", " 1", "a"])
)
def test_signed_integers_end_where_their_digits_end(numbers, rest):
    c = cursor(*(f"{number}{rest}".encode() for number in numbers))
    assert c.integer(signed=True).tolist() == numbers
    assert c.rest().tolist() == [rest.encode()] * len(numbers)
    assert c.problems == {}


def test_numbers_beyond_64_bits_fail():
    c = cursor(b"%d" % 2**63, b"%d" % 10**19, b"9" * 40, b"7", b"1" * 1000)
    assert c.integer()[3] == 7
    assert failed(c) == dict.fromkeys((0, 1, 2, 4), (0, "a number of 64 bits"))


def test_the_lowest_number_has_a_sign():
    c = cursor(b"-9223372036854775808", b"-9223372036854775809", b"-0", b"-", b"")
    numbers = c.integer(signed=True)
    assert (numbers[0], numbers[2]) == (-(2**63), 0)
    wide = (1, "a number of 64 bits")
    assert failed(c) == {1: wide, 3: (1, "a number"), 4: (0, "a number")}


def test_a_number_after_a_prefix_may_be_absent():
    c = cursor(b", color 7:", b":", b", color :")
    color = c.optional_integer(b", color ")
    assert color.filled(-1)[:2].tolist() == [7, -1]
    assert color.valid.tolist() == [True, False, True]
    assert failed(c) == {2: (8, "a number")}


# -- text -------------------------------------------------------------------------------------


def test_a_line_is_reported_where_it_first_failed():
    c = cursor(b"a=1;", b"b=2;", b"a=x;", b"a=4")
    c.expect(b"a=")
    assert c.integer()[0] == 1
    c.expect(b";")
    c.rest()
    c.finish()
    assert failed(c) == {1: (0, "'a='"), 2: (2, "a number"), 3: (3, "';'")}
    assert c.good().tolist() == [True, False, False, False]


def test_a_line_end_is_none_of_the_text():
    c = cursor(b"ab", b"abc")
    c.expect(b"ab")
    assert c.matches(b"\nabc").tolist() == [True, False]
    c.finish()
    assert failed(c) == {1: (2, "the end of the line")}


def test_literals_longer_than_a_word():
    c = cursor(b" (cumulative: 5", b" (cumulative; 5", b" (cum")
    assert c.optional(b" (cumulative: ").tolist() == [True, False, False]
    assert c.rest().tolist()[0] == b"5"


def test_expect_can_concern_some_rows_only():
    c = cursor(b"xa", b"xb", b"xa")
    c.expect(b"xa", where=np.array([True, True, False]))
    assert c.rest().tolist() == [b"", b"xb", b"xa"]
    assert failed(c) == {1: (0, "'xa'")}


def test_a_name_must_not_be_empty():
    c = cursor(b"name{0}", b"{0}", b"name")
    assert c.until(b"{", b" ").tolist() == [b"name", b"", b"name"]
    assert failed(c) == {1: (0, "a name")}


def test_text_between_marks_may_be_absent_but_must_be_closed():
    c = cursor(b"|a|b", b"b", b"||b", b"|ab")
    assert c.enclosed(b"|", b"|").tolist()[:3] == [b"a", None, b""]
    assert c.rest().tolist()[:3] == [b"b", b"b", b"b"]
    assert failed(c) == {3: (1, "'|'")}


def test_an_index_keeps_its_braces_and_is_empty_where_absent():
    c = cursor(b"{1,0}:", b":", b"{}:", b" {2}:")
    assert c.braced().tolist() == [b"{1,0}", b"{}", b"{}", b"{}"]
    assert cursor(b" {2}:").braced(b" ").tolist() == [b"{2}"]


def test_find_stops_at_the_first_byte_or_the_line_end():
    long = b"x" * 5000
    lines = [b"ab:c", b":", b"", b"abcdefgh:", b"abcdefg ", long + b" :", long]
    c = cursor(*lines)
    offsets = (c.find(b":", b" ") - c.block.starts).tolist()
    assert offsets == [2, 0, 0, 8, 7, 5000, 5000]


def test_find_does_not_look_into_the_next_line():
    c = cursor(b"a", b"b:")
    assert (c.find(b":") - c.block.starts).tolist() == [1, 1]


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), min_size=1))
@settings(max_examples=50)
def test_find_is_that_of_python(lines):
    c = cursor(*lines)
    expected = [min(n for n in (x.find(b'"'), x.find(b"\\"), len(x)) if n >= 0) for x in lines]
    assert (c.find(b'"', b"\\") - c.block.starts).tolist() == expected


def test_longer_texts_are_found_far_away_and_else_the_line_end():
    c = cursor(b"a" * 300 + b") b", b"a)", b"", b"\0) \0")
    assert (c.find(b") ") - c.block.starts).tolist() == [300, 2, 0, 1]
    some = c.find(b") ", where=np.array([False, True, True, True]))
    assert (some - c.block.starts).tolist() == [0, 2, 0, 1]


def test_nothing_is_found_after_the_last_line():
    c = cursor(b"", b"ab")
    c.at = c.end + 1
    assert (c.find(b"a") == c.end).all()
    assert c.matches(b"ab").tolist() == c.matches(b"a").tolist() == [True, False]
    assert not len(Block().cursor(np.arange(0)).find(b"a"))


# -- columns ----------------------------------------------------------------------------------

LENGTHS = st.sampled_from([0, 1, 7, 8, 9, 12, 13, 255, 256, 257, 600])
WORDS = st.builds(
    lambda n, tail: (b"a" * n + tail)[-n:] if n else b"", LENGTHS, st.binary(max_size=2)
)


@pytest.mark.slow
@given(st.lists(WORDS.map(lambda b: b.replace(b"\n", b"")), min_size=2))
def test_hashes_are_equal_where_texts_are(values):
    hashes = texts(*values).hashes(np.uint64(5)).tolist()
    for one, first in zip(values, hashes, strict=True):
        for other, second in zip(values, hashes, strict=True):
            assert (one == other) == (first == second), (one, other)


def test_hashes_depend_on_the_seed_and_not_on_the_place():
    text = texts(b"same", b"same", b"x" * 300, b"x" * 300)
    first, second = text.hashes(np.array([1, 1, 1, 1], np.uint64)), text.hashes(np.uint64(2))
    assert first[0] == first[1] != second[0]
    assert first[2] == first[3] != second[2]


def test_an_absent_index_hashes_as_an_empty_one():
    one, other = cursor(b":", b"{}", b"{0}").braced().hashes(np.uint64(1))[:2]
    assert one == other


def test_text_of_every_length_reaches_the_database():
    values = [b"x" * n for n in range(30)] + [b"y" * 5000, "é".encode() * 6, "é".encode() * 7]
    assert read_back(texts(*values)) == [value.decode() for value in values]


def test_absent_text_is_null_or_its_default():
    c = cursor(b"|a long text of a line|", b"x")
    assert read_back(c.enclosed(b"|", b"|")) == ["a long text of a line", None]
    assert read_back(cursor(b"{0}", b"x").braced()) == ["{0}", "{}"]
    few = cursor(b"x", b"{1}", b"x", b"{2,3,4,5,6,7,8}", b"x", b"x").braced()
    assert read_back(few) == ["{}", "{1}", "{}", "{2,3,4,5,6,7,8}", "{}", "{}"]


@pytest.mark.parametrize("patch", [b"short", b"longer than twelve", b"", None])
def test_patches_replace_rows(patch):
    text = texts(b"first", b"second", b"third, which is long")
    text.patches[1] = patch
    expected = ["first", None if patch is None else patch.decode(), "third, which is long"]
    assert read_back(text) == expected
    assert text.tolist()[1] == patch
    assert read_back(text.take(np.array([2, 1]))) == [expected[2], expected[1]]
    assert read_back(text.take(np.array([True, False, True]))) == [expected[0], expected[2]]


def test_a_patch_can_fill_a_row_that_was_absent():
    text = cursor(b"x", b"|b|").enclosed(b"|", b"|")
    text.patches[0] = b"filled"
    assert text.there().tolist() == [True, True]
    assert read_back(text) == ["filled", "b"]


def test_numbers_labels_and_flags_reach_the_database():
    some = [2**63 - 1, None, -(2**63)]
    assert read_back(objects(some), "BIGINT") == some
    assert read_back(np.array([1, -5]), "BIGINT") == read_back(np.array([1, -5]), "HUGEINT")
    huge = [10**38 - 1, None, -(10**38) + 1, 2**64, -1]
    assert read_back(objects(huge), "HUGEINT") == huge
    assert read_back(strings(["a", None, b"a long label", "x" * 40])) == [
        "a", None, "a long label", "x" * 40,
    ]  # fmt: skip
    assert read_back(Labels(np.array([1, 0, 1]), ["no", None])) == [None, "no", None]
    assert read_back(np.array([True, False] * 9), "BOOLEAN") == [True, False] * 9


def test_what_does_not_fit_into_its_column_is_null_and_reported():
    assert read_back(objects([2**63, 5]), "BIGINT", misfits=[0]) == [None, 5]
    assert read_back(objects([3, -(10**38)]), "HUGEINT", misfits=[1]) == [3, None]


@pytest.mark.parametrize(
    ("column", "data_type"),
    [(np.array([1.5]), "BIGINT"), (np.array([1]), "VARCHAR"), (np.array([1]), "BOOLEAN")],
)
def test_a_column_of_another_kind_never_reaches_the_database(column, data_type):
    with pytest.raises(TypeError, match=data_type):
        read_back(column, data_type)


def test_take_takes_the_rows_of_all_columns():
    columns = {"t": texts(b"a", b"b"), "n": Numbers(np.array([1, 2])), "i": np.array([3, 4])}
    taken = take(columns, np.array([1]))
    assert (taken["t"].tolist(), taken["n"].values.tolist(), taken["i"].tolist()) == (
        [b"b"], [2], [4],
    )  # fmt: skip
    assert take(columns, None) is columns


def test_taken_rows_keep_their_patches():
    column = texts(b"a", b"b", b"c")
    column.patches = {0: b"x", 2: None}
    assert column.take(np.array([2, 0, 1, 0])).tolist() == [None, b"x", b"b", b"x"]
    assert column.take(np.array([False, True, True])).tolist() == [b"b", None]


def test_a_place_is_looked_up_again_after_a_cursor_moves():
    c = cursor(b"a=1 b=2", b"b=2")
    assert c.optional(b"x=").tolist() == [False, False]
    assert c.optional(b"a=1 ").tolist() == [True, False]
    assert c.optional(b"b=").tolist() == [True, True]
    assert c.integer().tolist() == [2, 2]
