"""How often instructions run, and what of their operands and results they do not touch."""

import pytest

from bufdb.read.hlo_graph import HloGraph, loops_in
from bufdb.rows import executions

STACK, SLICE = "f32[24,8,8]{2,1,0}", "f32[1,8,8]{2,1,0}"
WHOLE, PART = 24 * 8 * 8 * 4, 8 * 8 * 4
REST = WHOLE - PART
FUSED = f"""
%fused (p: f32[24,8,8], q: f32[1,8,8], i: s32[]) -> f32[24,8,8] {{
  %p = {STACK} parameter(0)
  %q = {SLICE} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  BODY
}}
"""
ENTRY = f"""
ENTRY %main (x: f32[24,8,8], y: f32[1,8,8], n: s32[]) -> f32[24,8,8] {{
  %x = {STACK} parameter(0)
  %y = {SLICE} parameter(1)
  %n = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %one = LINE
}}
"""
FUSION = "fusion(%x, %y, %n), kind=kLoop, calls=%fused"
UPDATE = f"{STACK} dynamic-update-slice(%p, %q, %i, %zero, %zero)"
TAKEN = f"%taken = {SLICE} dynamic-slice(%p, %i, %zero, %zero), dynamic_slice_sizes={{1,8,8}}"


def rows(text):
    """Executions and bytes that are not touched, by instruction."""
    data = text.lstrip("\n").encode()
    by_name = executions.rows_of(HloGraph(data, loops_in(data)))
    return {name.decode(): tuple(cells) for name, *cells in by_name}


@pytest.mark.parametrize(
    ("line", "spared"),
    [
        (f"{SLICE} dynamic-slice(%x, %n, %z, %z), dynamic_slice_sizes={{1,8,8}}", REST),
        (f"{SLICE} slice(%x), slice={{[0:1], [0:8], [0:8]}}", REST),
        # An update in place neither reads nor writes the rest: an operand and a result.
        (f"{STACK} dynamic-update-slice(%x, %y, %n, %z, %z)", WHOLE + REST),
        (f"{STACK} scatter(%x, %n, %y), to_apply=%add", 2 * REST),
        (f"{STACK} negate(%x)", None),
    ],
)
def test_slices_and_updates_touch_a_part(line, spared):
    by_name = rows(ENTRY.replace("LINE", line))
    assert by_name == ({} if spared is None else {"one": (1, spared, None)})


@pytest.mark.parametrize(
    ("body", "shape", "spared"),
    [
        (f"{TAKEN}\n  ROOT %r = {SLICE} negate(%taken)", SLICE, REST),
        # Also read as a whole: all of it is touched.
        (f"{TAKEN}\n  %sum = {STACK} negate(%p)\n  ROOT %r = {STACK} add(%sum, %sum)", STACK, 0),
        (f"ROOT %r = {UPDATE}", STACK, WHOLE + REST),
        (f"%u = {UPDATE}\n  ROOT %r = {STACK} bitcast(%u)", STACK, WHOLE + REST),
        # What is read of it before the update counts once.
        (f"{TAKEN}\n  ROOT %r = {UPDATE}", STACK, 2 * REST),
        (f"%u = {UPDATE}\n  ROOT %r = {STACK} negate(%u)", STACK, 0),
        # What is updated is made in the fusion: all of it is written.
        (f"%m = {STACK} broadcast(%zero)\n  ROOT %r = {UPDATE.replace('%p', '%m')}", STACK, 0),
    ],
)
def test_what_is_fused_touches_as_much(body, shape, spared):
    text = FUSED.replace("BODY", body) + ENTRY.replace("LINE", f"{shape} {FUSION}")
    assert rows(text) == ({"one": (1, spared, None)} if spared else {})


def test_each_result_of_a_fusion_counts():
    body = f"%u = {UPDATE}\n  %m = {SLICE} negate(%q)\n  ROOT %r = ({STACK}, {SLICE}) tuple(%u, %m)"
    text = FUSED.replace("BODY", body) + ENTRY.replace("LINE", f"({STACK}, {SLICE}) {FUSION}")
    assert rows(text) == {"one": (1, WHOLE + REST, None)}


def test_other_memory_spaces_spare_nothing():
    host = STACK.replace("}", ":S(5)}")
    line = f"{host} dynamic-update-slice(%x, %y, %n, %z, %z)"
    text = ENTRY.replace("LINE", line).replace(f"%x = {STACK}", f"%x = {host}")
    assert rows(text) == {}


LOOP = """
%body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p = (s32[], f32[4,8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %a = f32[4,8] get-tuple-element(%p), index=1
  %next = s32[] negate(%i)
  %twice = f32[4,8] add(%a, %a)
  ROOT %t = (s32[], f32[4,8]) tuple(%next, %twice)
}

%condition (q: (s32[], f32[4,8])) -> pred[] {
  %q = (s32[], f32[4,8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] is-finite(%j)
}

ENTRY %main (x: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %x = (s32[], f32[4,8]) parameter(0)
  ROOT %while.1 = (s32[], f32[4,8]) while(%x), condition=%condition, body=%bodyTRIPS
}
"""


def test_loops_count_as_often_as_they_run():
    trips = ', backend_config={"known_trip_count":{"n":"10"}}'
    by_name = rows(LOOP.replace("TRIPS", trips))
    assert by_name == {
        "next": (10, 0, None),
        "twice": (10, 0, None),
        "less": (11, 0, None),
    }
    why = "while.1 does not say how often it loops"
    by_name = rows(LOOP.replace("TRIPS", ""))
    assert by_name == dict.fromkeys(("next", "twice", "less"), (None, 0, why))


def test_a_text_without_any_of_these_is_not_read():
    assert not executions.has_rows(ENTRY.replace("LINE", f"{STACK} negate(%x)").encode())
    assert executions.has_rows(LOOP.encode())
    assert executions.has_rows(b"  %c = f32[] conditional(%p, %a, %b)")
