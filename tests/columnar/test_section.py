"""Sections: a block of pieces, kept in place among the other bytes of their file."""

import numpy as np
import pytest

from bufdb.columnar.scan import PAD
from bufdb.columnar.section import Account, Piece, Section

FILE = b"head\none\ntwo\nthree\nfour\n" + PAD
"""The text is two and three, below what a round before left: one."""


def window(data=FILE, above=b"one\n", span=(9, 19)):
    return Piece(0, "0.txt", data, lambda: 1, begins=False, above=above, span=span)


def lines(section):
    return [section.block.line(number) for number in range(len(section))]


def test_the_text_is_a_part_of_the_data():
    assert (window().text, window().size) == (b"two\nthree\n", 10)
    whole = Piece(0, "0.txt", b"two\n")
    assert (whole.text, whole.size, whole.in_place()) == (b"two\n", 4, None)


def test_a_block_begins_where_the_text_above_is():
    section = Section([window()])
    assert section.block.data is FILE
    assert lines(section) == [b"one", b"two", b"three"]
    assert section.piece_lines.tolist() == [0]


def test_what_the_next_round_reads_again_is_found_in_place():
    block = Section([window()]).block
    assert block.data[block.starts[2] : block.size] == b"three\n"


@pytest.mark.parametrize(
    "piece",
    [
        window(above=b"ONE\n"),
        window(above=b"no such line, longer than all that stands above\n"),
        window(FILE[:40], span=(9, 19)),
        window(FILE[:-1] + b"\0"),
        window(span=(9, 18)),
    ],
    ids=["other text above", "too long", "no room after it", "a last NUL", "no line end"],
)
def test_otherwise_the_block_is_a_copy(piece):
    section = Section([piece])
    assert section.block.data is not piece.data
    assert lines(section) == [piece.above[:-1], b"two", b"three"]


@pytest.mark.parametrize("data", [FILE, FILE[:40]], ids=["in place", "copied"])
def test_a_line_has_the_number_that_it_has_in_its_file(data):
    account = Account()
    section = Section([window(data)], account)
    section.unreadable(np.array([0, 2]), "something else")
    section.settle()
    section.close()
    reported = [(finding.line_number, finding.message) for finding in account.findings()]
    assert reported == [
        (2, "expected something else, found 'one'"),
        (4, "expected something else, found 'three'"),
    ]


def test_parts_of_a_window_are_pieces_of_their_own():
    first, second = window(above=b"").parts(6)
    assert (first.text, second.text) == (b"two\n", b"three\n")
    assert [first.in_place(), second.in_place()] == [None, None]
    assert [first.lines_before(), second.lines_before()] == [1, 2]
