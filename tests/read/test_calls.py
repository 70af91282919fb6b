"""Op and frame of functions that are lowered once, from the text as received."""

import pytest

from bufdb.read import hlo
from bufdb.read.calls import CallOp, Calls

TABLES = b"""HloModule jit_f

FileNames
1 "/home/user/train.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=4 end_line=4 column=8 end_column=20}
2 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=8 end_column=20}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

"""
FUNCTION = b"""
%region_0.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0), metadata={op_name="sum"}
  %b = f32[] parameter(1), metadata={op_name="sum"}
  ROOT %add.1 = f32[] add(%a, %b), metadata={op_name="sum"}
}

%inner.2 (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %sum.7 = f32[8]{0} reduce-window(%x, %zero), window={size=8}, to_apply=%region_0.1, metadata={op_name="sum"}
}

%outer.3 (y: f32[8]) -> f32[8] {
  %y = f32[8]{0} parameter(0)
  ROOT %call.1 = f32[8]{0} call(%y), to_apply=%inner.2
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0), metadata={op_name="p"}
"""  # noqa: E501
CALL = (
    b'  %%c.%d = f32[8] call(%%p), to_apply=%%outer.3, metadata={op_name="%b" stack_frame_id=%d}\n'
)
AFTER = b"""
%region_0.1.clone.2 (a: f32[], b: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0), metadata={op_name="sum"}
  ROOT %add.2 = f32[] add(%a.1, %a.1)
}

%fused (x: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0), metadata={op_name="p"}
  %zero.1 = f32[] constant(0)
  ROOT %window.1 = f32[8]{0} reduce-window(%x.1, %zero.1), window={size=8}, to_apply=%region_0.1.clone.2
}

%mixed (x: f32[8]) -> f32[8] {
  %x.2 = f32[8]{0} parameter(0)
  %sum.9 = f32[8]{0} add(%x.2, %x.2), metadata={op_name="sum"}
  ROOT %mul.9 = f32[8]{0} multiply(%sum.9, %x.2), metadata={op_name="jit(f)/mul" stack_frame_id=2}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0), metadata={op_name="p"}
  %fusion.1 = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused
  %fusion.2 = f32[8]{0} fusion(%fusion.1), kind=kLoop, calls=%mixed
  ROOT %bare.1 = f32[8]{0} add(%fusion.2, %fusion.2), metadata={op_name="sum"}
}
"""  # noqa: E501


def before(*calls, tables=TABLES):
    lines = b"".join(CALL % (at, *call) for at, call in enumerate(calls))
    return tables + FUNCTION + lines + b"}\n"


def ops_of_calls(text, parts=1):
    calls = Calls()
    lines = text.splitlines(keepends=True)
    for at in range(parts):
        calls.feed(b"".join(lines[at * len(lines) // parts : (at + 1) * len(lines) // parts]))
    return calls.found_in(AFTER, hlo.read(TABLES))


ONE = CallOp(1, b"jit(f)/jit(cumsum)/sum")


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 50])
def test_what_is_of_one_call_has_its_frame_and_its_op(parts):
    has = ops_of_calls(before((b"jit(f)/jit(cumsum)", 1)), parts)
    assert has == dict.fromkeys([b"window.1", b"fusion.1", b"a.1", b"sum.9", b"bare.1"], ONE)


def test_calls_on_two_lines_leave_neither_line_nor_op():
    has = ops_of_calls(before((b"jit(f)/jit(cumsum)", 1), (b"jit(f)/jit(cumsum)", 2)))
    assert set(has.values()) == {CallOp(0, None)}
    assert b"fusion.1" not in has


def test_calls_of_two_ops_on_a_line_leave_the_line():
    has = ops_of_calls(before((b"jit(f)/jit(cumsum)", 1), (b"jit(f)/transpose(jit(cumsum))", 1)))
    assert has[b"fusion.1"] == has[b"bare.1"] == CallOp(1, None)


def test_a_call_without_a_frame_says_nothing():
    assert ops_of_calls(before((b"jit(f)/jit(cumsum)", 0))) == {}


def test_frames_of_other_tables_say_nothing():
    other = TABLES.replace(b"line=4", b"line=40")
    assert ops_of_calls(before((b"jit(f)/jit(cumsum)", 1), tables=other)) == {}


HEAD = b"\n%%f.%d (x: f32[]) -> f32[] {\n"
WAY = b'  %%c.%d = f32[] call(%%x), to_apply=%%f.%d, metadata={op_name="%d"}\n'
DEEP = b'  %d = f32[] add(%p), metadata={op_name="deep"}\n}\n'
MAIN = b"\nENTRY %main (p: f32[]) -> f32[] {\n"
OF_F = b'  %c = f32[] call(%p), to_apply=%f.0, metadata={op_name="jit(f)/g" stack_frame_id=1}\n}\n'


def test_calls_on_many_ways_are_followed_once_each():
    """Two calls in each of 40 functions make 2 to the power of 40 ways."""
    layers = [
        HEAD % at + b"".join(WAY % (way, at + 1, way) for way in range(2)) + b"}\n"
        for at in range(40)
    ]
    calls = Calls()
    calls.feed(TABLES + b"".join(layers) + HEAD % 40 + DEEP + MAIN + OF_F)
    assert calls.found_in(MAIN + DEEP, hlo.read(TABLES)) == {b"d": CallOp(1, None)}


def test_functions_that_call_themselves_end():
    text = before((b"jit(f)/jit(cumsum)", 1)).replace(
        b"reduce-window(", b"call(%x), to_apply=%outer.3 ("
    )
    ops_of_calls(text)
