"""Line forms of totals and used values: text in, rows out (format section 5)."""

import line_forms
import numpy as np
import pytest
from line_forms import NOTHING, PATH, problems, rows, section

from bufdb.read import allocations, used_values

SEEDS = np.array([1], np.uint64)
TITLE = "\nTotal bytes used: 12 (12B)\n\nUsed values:\n"


def assigned(*shorts):
    """Values of an allocation section, as the reader of used values wants them."""
    lines = "".join(f" value: <{short}> (size=4,offset=0): f32[]\n" for short in shorts)
    return line_forms.assigned(allocations.read(section(f"allocation 0: size 4:\n{lines}")).values)


def read(text, known=NOTHING, findings=()):
    text_section = section(text)
    result = used_values.read(text_section, known, SEEDS, True)
    assert problems(text_section) == list(findings)
    return result


def value(number, name, described="", positions=None, uses="  tuple, operand 0\n"):
    seen = positions or f"  {name}\n"
    return f"<{number} {name} @0>\n positions:\n{seen} uses:\n{uses}{described}"


def tellings(result):
    return [
        (rows(result.heads, "value_id")[head], text)
        for head, text in rows(result.descriptions, "head text")
    ]


def test_positions_with_and_without_an_index():
    result = read(TITLE + value(3, "a{}", positions="  a {}\n  tuple.1 {1,0}\n  b\n"))
    assert rows(result.heads, "value_id instruction_name shape_index") == [(3, "a", "{}")]
    assert rows(result.positions, "head ordinal instruction_name shape_index") == [
        (0, 0, "a", "{}"),
        (0, 1, "tuple.1", "{1,0}"),
        (0, 2, "b", "{}"),
    ]


def test_uses_with_and_without_an_index():
    uses = "  add.1, operand 1\n  while.2, operand 0 {2,0}\n"
    result = read(TITLE + value(3, "a", uses=uses))
    assert rows(result.uses, "head ordinal instruction_name operand_number operand_index") == [
        (0, 0, "add.1", 1, "{}"),
        (0, 1, "while.2", 0, "{2,0}"),
    ]


@pytest.mark.parametrize("uses", ["", "  (none)\n"])
def test_no_uses(uses):
    result = read(TITLE + value(3, "a", uses=uses) + value(4, "b"))
    assert rows(result.uses, "head") == [1]
    assert rows(result.positions, "head") == [0, 1]


def test_uses_that_are_not_initialized():
    text = value(3, "a", uses="").replace(" uses:", " uses are not initialized yet.")
    result = read(TITLE + text + value(4, "b"))
    assert rows(result.heads, "value_id") == [3, 4]
    assert rows(result.uses, "head") == [1]


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("Total bytes used: 12 (12B)", (12, "12B")),
        ("Total bytes used: 12", (12, None)),
        ("Total bytes used: -9223372036854775808 (-8.00EiB)", (-(2**63), "-8.00EiB")),
        ("Total bytes used: 80000400028 (74.51GiB)", (80000400028, "74.51GiB")),
    ],
)
def test_totals(line, total):
    result = read(f"\n{line}\n\nUsed values:\n{value(3, 'a')}")
    assert [result.totals[0][1:3]] == [total]
    assert len(result.totals) == 1


@pytest.mark.parametrize("line", [f"Total bytes used: {2**63}", "Total bytes used: x", "Used:"])
def test_unknown_text_above_the_values_is_reported(line):
    message = f"expected the total or a used value, found {line!r}"
    read(f"\n{line}\n{value(3, 'a')}", findings=[("unreadable_line", PATH, 2, message)])


# -- from instruction: ------------------------------------------------------------------------


def two(spelling, end):
    described = f" from instruction:{spelling}%{{0}} = f32[] add(%x){end}"
    first, second = (described.format(name) for name in ("a", "b"))
    return TITLE + value(3, "a", first) + value(4, "b", second) + "\n"


@pytest.mark.parametrize(
    ("spelling", "end"), [("", "\n"), (" ", "\n"), (" ", "")], ids=["tight", "spaced", "glued"]
)
def test_three_spellings_of_from_instruction(spelling, end):
    for known in (NOTHING, assigned("3 a @0", "4 b @0")):
        result = read(two(spelling, end), known)
        assert rows(result.heads, "value_id instruction_name") == [(3, "a"), (4, "b")]
        assert tellings(result) == [(3, "%a = f32[] add(%x)"), (4, "%b = f32[] add(%x)")]


def test_heads_may_be_glued_to_text_with_angle_brackets():
    described = ' from instruction: %a = f32[] add(%x), metadata={op_name="jit(<lambda>)/<b"}'
    result = read(TITLE + value(3, "a", described) + value(4, "b"), assigned("3 a @0", "4 b @0"))
    assert rows(result.heads, "value_id") == [3, 4]
    assert tellings(result) == [(3, described.removeprefix(" from instruction: "))]


RAW = """%a = f32[] custom-call(%x), backend_config={"text": [
<SHORT>
 positions:
  x
 uses:
  y, operand 0
 from instruction: %y
]}}"""


@pytest.mark.parametrize("short", ["9 unknown @0", "4 b @1", "4 c @0", "2 z @0", "5 look @0"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_raw_instruction_may_hold_what_looks_like_a_value(short, is_known):
    described = f" from instruction: {RAW.replace('SHORT', short)}\n"
    text = TITLE + value(3, "a", described) + value(4, "b") + value(5, "look")
    text_section = section(text)
    known = assigned("2 z @0", "3 a @0", "4 b @0", "5 look @0") if is_known else NOTHING
    result = used_values.read(text_section, known, SEEDS, True)
    text_section.close()
    assert {f.severity for f in text_section.account.findings()} <= {"notice"}
    assert rows(result.heads, "value_id") == [3, 4, 5]
    assert tellings(result) == [(3, RAW.replace("SHORT", short))]
    assert rows(result.positions, "head instruction_name") == [(0, "a"), (1, "b"), (2, "look")]


def test_empty_lines_inside_and_after_an_instruction():
    described = " from instruction: %a = f32[] custom-call(), backend_config={\n\n}\n"
    result = read(TITLE + value(3, "a", described) + "\n\n")
    assert tellings(result) == [(3, "%a = f32[] custom-call(), backend_config={\n\n}")]


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        (b'a({"b": "}"})', True),
        (b"a({)", False),
        (b'a("\\"', False),
        (b'a("\\\\")', True),
        (b"plain", True),
        (b'"({["', True),
    ],
)
def test_a_whole_instruction_has_its_quotes_and_brackets_closed(text, is_whole):
    assert used_values.is_whole(text) == is_whole


# -- what cannot be read, and parts -----------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  a {0}", "  a {0", "expected '}' at column 6, found '  a {0'"),
        ("  a {0}", "  a {0} x", "expected the end of the line at column 8, found '  a {0} x'"),
        ("  t, operand 1", "  t, operand", "expected ', operand ' at column 4, found '  t, opera"),
        ("  t, operand 1", "  t, operand x", "expected a number at column 14, found '  t, operan"),
        ("  t, operand 1", " t, operand 1", "expected '  ' at column 1, found ' t, operand 1'"),
    ],
)
def test_an_unreadable_line_is_reported_alone(old, new, message):
    text = value(3, "a{0}", positions="  a {0}\n", uses="  t, operand 1\n")
    text_section = section(text.replace(old, new) + value(4, "b"), before=10)
    result = used_values.read(text_section, NOTHING, SEEDS, True)
    assert len(result.positions["head"]) + len(result.uses["head"]) == 3
    ((code, path, line, problem),) = problems(text_section)
    assert (code, path, line) == ("unreadable_line", PATH, 13 if "a" in old[:3] else 15)
    assert problem.startswith(message)


def test_the_last_value_of_a_part_waits_for_the_next_part():
    text = TITLE + value(3, "a") + value(4, "b")
    text_section = section(text)
    result = used_values.read(text_section, NOTHING, SEEDS, is_last=False)
    assert rows(result.heads, "value_id") == [3]
    assert rows(result.positions, "instruction_name") == ["a"]
    assert text[result.rest :] == value(4, "b")
