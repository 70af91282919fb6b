"""Line forms of allocations and used values: text in, rows out (format sections 4 and 5)."""

import line_forms
import numpy as np
import pytest
from line_forms import NOTHING, PATH, problems, row_of, rows, section

from bufdb.read import allocations, used_values
from bufdb.read.allocations import KINDS

SEEDS = np.array([1], np.uint64)
NAMES = "value_id instruction_name shape_index is_phi color size_bytes offset_bytes shape"


def head(line):
    """Return the columns of an allocation's head line."""
    text_section = section(line + "\n")
    columns = allocations.read(text_section).allocations
    known = row_of(columns)
    codes = [code for code, *_ in problems(text_section)]
    assert codes == (["unknown_attribute"] if "other_attributes" in known else [])
    kind = KINDS[known.pop("kind", 0)]
    return kind, {key: value for key, value in known.items() if key != "allocation_index"}


def values(*lines):
    text = "allocation 4: size 64, preallocated-temp:\n" + "".join(line + "\n" for line in lines)
    text_section = section(text)
    columns = allocations.read(text_section).values
    assert problems(text_section) == []
    assert set(rows(columns, "allocation_index")) <= {4}
    return rows(columns, NAMES)


def assigned(text):
    """The values of an allocation section, as the reader of used values wants them."""
    return line_forms.assigned(allocations.read(section(text)).values)


def used(text, known=NOTHING, findings=()):
    text_section = section(text)
    result = used_values.read(text_section, known, SEEDS, True)
    assert problems(text_section) == list(findings)
    return result


# -- heads of allocations ---------------------------------------------------------------------

PARAMETER, OUTPUT, TEMP = "parameter", "output", "temp"


@pytest.mark.parametrize(
    ("line", "kind", "cells"),
    [
        ("size 8, preallocated-temp:", TEMP, {"size_bytes": 8, "is_preallocated_temp": True}),
        ("size 8:", TEMP, {"size_bytes": 8}),
        ("0x55d8c0ffee, size 8:", TEMP, {"has_pointer": True, "size_bytes": 8}),
        ("size 8, color 1:", TEMP, {"size_bytes": 8, "color": 1}),
        ("size 8, color 1, page -1:", TEMP, {"size_bytes": 8, "color": 1, "page": -1}),
        ("size 8, constant:", "constant", {"size_bytes": 8, "is_constant": True}),
        ("size 8, thread-local:", "thread_local", {"size_bytes": 8, "is_thread_local": True}),
        ("size 8, constant, thread-local:", "thread_local",
         {"size_bytes": 8, "is_constant": True, "is_thread_local": True}),
        ("size 8, maybe-live-out:", OUTPUT, {"size_bytes": 8, "is_maybe_live_out": True}),
        ("size 8, parameter 3:", PARAMETER, {"size_bytes": 8, "parameter_number": 3}),
        ("size 8, parameter 3 at ShapeIndex {1,0}:", PARAMETER,
         {"size_bytes": 8, "parameter_number": 3, "parameter_shape_index": "{1,0}"}),
        ("size 8, parameter 3, shape |f32[2]| at ShapeIndex {1}:", PARAMETER,
         {"size_bytes": 8, "parameter_number": 3, "parameter_shape": "f32[2]",
          "parameter_shape_index": "{1}"}),
        ("size 8, parameter 3, shape |<unknown shape>| at ShapeIndex {1}:", PARAMETER,
         {"size_bytes": 8, "parameter_number": 3, "parameter_shape": "<unknown shape>",
          "parameter_shape_index": "{1}"}),
        ("size 8, parameter 3, shape |f32[2]| at ShapeIndex {1}, output shape is |f32[2]|, "
         "maybe-live-out:", "donated_parameter",
         {"size_bytes": 8, "parameter_number": 3, "parameter_shape": "f32[2]",
          "parameter_shape_index": "{1}", "output_shape": "f32[2]", "is_maybe_live_out": True}),
        ("size 16, output shape is |(f32[2], /*index=1*/s32[])|, maybe-live-out:", OUTPUT,
         {"size_bytes": 16, "output_shape": "(f32[2], /*index=1*/s32[])",
          "is_maybe_live_out": True}),
        ("size 4611686018427387911:", TEMP, {"size_bytes": 2**62 + 7}),
        ("size -9223372036854775808:", TEMP, {"size_bytes": -(2**63)}),
        ("size 8, alignment 64, maybe-live-out:", OUTPUT,
         {"size_bytes": 8, "is_maybe_live_out": True, "other_attributes": "alignment 64"}),
        ("size 8, new |a, b| x, constant, odd:", "constant",
         {"size_bytes": 8, "is_constant": True, "other_attributes": "new |a, b| x, odd"}),
        ("size 8, constant, color 2:", "constant",
         {"size_bytes": 8, "color": 2, "is_constant": True}),
    ],
)  # fmt: skip
def test_heads_of_allocations(line, kind, cells):
    assert head(f"allocation 0: {line}") == (kind, cells)


def test_parameter_0_is_a_parameter():
    text_section = section("allocation 0: size 4, parameter 0, shape |f32[]| at ShapeIndex {}:\n")
    columns = allocations.read(text_section).allocations
    assert rows(columns, "parameter_number parameter_shape_index") == [(0, "{}")]
    assert KINDS[rows(columns, "kind")[0]] == PARAMETER


def test_an_irregular_head_disturbs_no_other():
    text = "allocation 0: size 1:\nallocation 1: size 2, new:\nallocation 2: size 3, color 5:\n"
    columns = allocations.read(section(text)).allocations
    assert rows(columns, "allocation_index size_bytes color other_attributes") == [
        (0, 1, 0, None),
        (1, 2, 0, "new"),
        (2, 3, 5, None),
    ]


# -- value lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "cells"),
    [
        ("7 add.1 @0", (7, "add.1", "{}", False, 0)),
        ("7 add.1{} @0", (7, "add.1", "{}", False, 0)),
        ("7 while.2{1,0} (phi) @1", (7, "while.2", "{1,0}", True, 1)),
        ("7 p.1-2_c (phi) @12", (7, "p.1-2_c", "{}", True, 12)),
        ("7 add.1", (7, "add.1", "{}", False, 0)),
    ],
)
def test_value_lines(short, cells):
    shape = "f32[8,128]{1,0:T(8,128)S(1)}"
    value_rows = values(f" value: <{short}> (size=4096,offset=64): {shape}")
    assert value_rows == [(*cells, 4096, 64, shape)]


def test_values_may_be_huge_and_shapes_may_be_tuples():
    shape = "(f32[]{:T(128)}, /*index=5*/(s32[2]{0}))"
    (row,) = values(f" value: <7 t{{}} @0> (size={2**62},offset={2**62}): {shape}")
    assert row[5:] == (2**62, 2**62, shape)


def test_a_reuse_block_repeats_values_and_adds_no_row():
    value_rows = values(
        " value: <7 a{0} @0> (size=4,offset=0): f32[]",
        " reused by buffers of a different color:",
        "  value: <9 b @2> (color=2)",
    )
    assert [row[0] for row in value_rows] == [7]


# -- lines that cannot be read ----------------------------------------------------------------

VALUE = " value: <7 a @0> (size=4,offset=0): f32[]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("allocation 1: size x:", "expected a number at column 20, found 'allocation 1: size x:'"),
        (f"allocation 1: size {2**63}:",
         "expected a number of 64 bits at column 20, found 'allocation 1: size 92233720368547758"
         "08:'"),
        ("allocation 1: size 8", "expected ':' at column 21, found 'allocation 1: size 8'"),
        ("allocation 1: size 8, shape |f32", "expected '|' at column 30, found "
         "'allocation 1: size 8, shape |f32'"),
        (VALUE.replace("4,", ","), "expected a number at column 24, found "
         "' value: <7 a @0> (size=,offset=0): f32[]'"),
        (VALUE.replace(" a ", "  "), "expected a name at column 12, found "
         "' value: <7  @0> (size=4,offset=0): f32[]'"),
        ("rubbish", "expected an allocation or a value line, found 'rubbish'"),
        ("  value: <9 b @2>", "expected ' (color=' at column 18, found '  value: <9 b @2>'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_reported_with_its_line(line, message):
    text = f"BufferAssignment:\nallocation 0: size 4:\n{VALUE}\n{line}\nallocation 2: size 4:\n"
    text_section = section(text, before=10, begins=True)
    result = allocations.read(text_section)
    assert rows(result.allocations, "allocation_index") == [0, 2]
    assert rows(result.values, "value_id") == [7]
    ((code, path, number, text),) = problems(text_section)
    assert (code, path, number) == ("unreadable_line", PATH, 14)
    assert text == message


def test_values_below_an_unreadable_allocation_are_reported_too():
    text_section = section(f"allocation x:\n{VALUE}\n")
    assert rows(allocations.read(text_section).values, "value_id") == []
    assert [(line, text[:47]) for _, _, line, text in problems(text_section)] == [
        (1, "expected a number at column 12, found 'allocati"),
        (2, "expected a readable allocation above it at colu"),
    ]


def test_a_section_can_continue_an_allocation():
    result = allocations.read(section(f"{VALUE}\nallocation 5: size 1:\n"), last_index=4)
    assert rows(result.values, "allocation_index value_id") == [(4, 7)]


def test_many_bad_lines_are_reported_once():
    text_section = section("rubbish\n" * 60)
    allocations.read(text_section)
    text_section.close()
    findings = text_section.account.findings()
    assert len(findings) == 51
    assert findings[-1].message == "and 10 more lines like this from here on"
    assert findings[-1].line_number == 51
