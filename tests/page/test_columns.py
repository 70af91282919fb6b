"""Columns of varints: what is packed is read back by a reader that knows only the description."""

import base64
import gzip
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_reading import decoded, slot

from bufdb.page import slots
from bufdb.page.slots import LARGEST, Column, Texts, TooLargeError, as_json, pack, varints

NUMBERS = st.lists(st.integers(-LARGEST, LARGEST))


def test_small_numbers_take_a_byte_and_others_seven_bits_each():
    assert varints([0, -1, 1, 63, -64]) == bytes([0, 1, 2, 126, 127])
    assert varints([64, 150]) == bytes([128, 1, 172, 2])


@given(NUMBERS)
def test_numbers_are_read_back(numbers):
    assert decoded(varints(numbers)) == numbers


@given(st.lists(st.integers(0, LARGEST)), st.lists(st.integers(0, LARGEST)))
def test_columns_are_read_back_as_they_are_and_as_differences(one, other):
    packed = pack({"text": ["é\u202e"]}, [Column("one", one, True), Column("other", other)])
    head, columns = slot(packed)
    assert columns == {"one": one, "other": other}
    assert head["text"] == ["é\u202e"]


@pytest.mark.parametrize("number", [LARGEST + 1, -LARGEST - 1])
def test_a_number_that_javascript_would_round_is_refused(number):
    assert float(2 * LARGEST) == 2 * LARGEST
    with pytest.raises(TooLargeError, match=str(number)):
        pack({}, [Column("size", [number])])


def test_json_has_no_number_that_javascript_would_round():
    data = json.loads(as_json({"a": [2**53, -(2**70), 2**53 - 1], "b": float("inf"), "c": True}))
    assert data == {
        "a": [str(2**53), str(-(2**70)), 2**53 - 1],
        "b": None,
        "c": True,
    }


def test_the_same_content_gives_the_same_bytes():
    column = Column("size", [1, 2, 3])
    assert pack({"a": 1}, [column]) == pack({"a": 1}, [column])
    assert gzip.decompress(pack({}))[4:] == b'{"columns":[]}'
    assert base64.b64encode(pack({})[4:8]) == b"AAAAAA=="  # no time


def test_texts_are_numbered_in_order_of_first_use():
    texts = Texts()
    assert [texts(text) for text in ("b", "a", None, "b", "")] == [0, 1, -1, 0, 2]
    assert list(texts.numbers) == ["b", "a", ""]


def test_a_step_has_one_name_and_those_beyond_the_program_none():
    texts = Texts()
    steps = [(1, "dot.3"), (1, "add"), (3, None), (9, "late")]
    module = SimpleNamespace(schedule_length=4)
    stems, numbers = slots._steps(SimpleNamespace(steps=steps, module=module), texts)
    assert list(numbers.numbers) == [0, 4, 0, 0]
    assert [stem == texts("dot") for stem in stems.numbers] == [False, True, False, False]
