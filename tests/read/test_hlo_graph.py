"""An HLO text as a graph, in every form that XLA has printed."""

import pytest

from bufdb.read.hlo_graph import HloGraph, loops_in, loops_of

TEXT = b"""%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%p), index=1
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %x)
}

%cond (q: (s32[], f32[4])) -> pred[] {
  %q = (s32[], f32[4]{0}) parameter(0)
  ROOT %lt = pred[] constant(true)
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0), metadata={op_name="w[\\'a\\']"}
  %w = (s32[], f32[4]{0}) while(%init), condition=%cond, body=%body, METADATA, CONFIG
  ROOT %r = f32[4]{0} get-tuple-element(%w), index=1
}
"""
TEXT = TEXT.replace(b"METADATA", b'metadata={op_name="jit(f)/while" stack_frame_id=7}')
TEXT = TEXT.replace(b"CONFIG", b'backend_config={"known_trip_count":{"n":"12"}}')


def graph(text):
    return HloGraph(text, loops_in(text))


def one(line, name=b"x"):
    """The instruction of one line."""
    instruction = graph(b"ENTRY %e () -> f32[] {\n  " + line + b"\n}\n").find(0, name)
    assert instruction is not None
    return instruction


def test_computations_have_roots_callers_and_homes():
    hlo_graph = graph(TEXT)
    assert hlo_graph.root(b"body").name == b"t"
    assert hlo_graph.root(b"main").opcode == "get-tuple-element"
    assert hlo_graph.root(b"nowhere") is None
    homes = hlo_graph.homes([b"a", b"x", b"lt", b"nothing"])
    assert homes == {b"a": 2, b"x": 0, b"lt": 1}
    assert [(i.name, role) for i, role, _ in map(hlo_graph.caller, (0, 1))] == [
        (b"w", "body"), (b"w", "condition")
    ]  # fmt: skip
    assert hlo_graph.caller(2) is None


def test_a_line_is_taken_apart():
    loop = graph(TEXT).find(2, b"w")
    assert (loop.opcode, loop.shape) == ("while", "(s32[], f32[4]{0})")
    assert loop.operands == [(b"init", ())]
    assert loop.called == {"condition": [b"cond"], "body": [b"body"]}
    assert loop.metadata == {"op_name": b"jit(f)/while", "stack_frame_id": 7}
    assert loop.trip_count == 12
    assert graph(TEXT).find(0, b"x").number == 1
    assert graph(TEXT).find(2, b"a").op_name == b"w['a']"


@pytest.mark.parametrize("shape", [
    "(s32[], /*index=1*/(f32[2]{0}, pred[]))", "(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, s32[])", "()",
])  # fmt: skip
def test_a_tuple_ends_before_the_opcode(shape):
    ins = one(f"%x = {shape} custom-call(%a, %b), to_apply=%c, comment=(1) of(2)".encode())
    assert (ins.shape, ins.opcode, ins.operands[1]) == (shape, "custom-call", (b"b", ()))


@pytest.mark.parametrize("filling", [0, 5000])
@pytest.mark.parametrize("lines", [
    b"  %a = f32[] add(%b)\n  %x = f32[] first()\n  %xx = f32[] add(%x)\n",
    b"  ROOT %x = f32[] first()\n",
    b"  x = f32[] first()\n  %a = f32[] add(x)\n",
    b'  %x = f32[] first(), metadata={op_name="%x = "}\n  %a = f32[] add(), f={"  %x = f()"}\n',
    b"  %x = f32[] other()\n  %x = f32[] first()\n",
])  # fmt: skip
def test_a_line_is_found_in_short_and_long_computations(lines, filling):
    hlo_graph = graph(b"%e () -> f32[] {\n" + b"/" * filling + b"\n" + lines + b"}\n")
    assert hlo_graph.find(0, b"x").opcode == "first"
    assert hlo_graph.find(0, b"x") is hlo_graph.find(0, b"x")
    assert hlo_graph.find(0, b"y") is None


def test_what_is_found_in_two_ways_is_one_instruction():
    hlo_graph = graph(TEXT)
    assert hlo_graph.root(b"main") is hlo_graph.find(2, b"r")
    assert hlo_graph.caller(0)[0] is hlo_graph.find(2, b"w")
    assert hlo_graph.operand(hlo_graph.find(2, b"r"), 0, (1,)) == (hlo_graph.find(2, b"w"), (1,))


@pytest.mark.parametrize("inside", [
    b"%a, %b.1", b"%a, /*index=1*/%b.1", b"f32[2,3]{1,0} %a, (f32[2], s32[]) %b.1",
    b"a, b.1", b"f32[2,3]{1,0:T(8,128)} a, /*index=1*/(f32[2], s32[]) b.1",
])  # fmt: skip
def test_operands_in_every_form(inside):
    ins = one(b"x = f32[] add(" + inside + b"), metadata={}")
    assert ins.operands == [(b"a", ()), (b"b.1", ())]


def test_operands_with_an_index():
    ins = one(b"ROOT %x = f32[] add(%w#1, %v#0,2)")
    assert ins.operands == [(b"w", (1,)), (b"v", (0, 2))]


def test_branches_are_in_their_order():
    many = one(b"%x = f32[] conditional(%i, %a, %b), branch_computations={%one, %two}")
    assert many.called == {"branch": [b"one", b"two"]}
    two = one(b"x = f32[] conditional(p, a, b), true_computation=one, false_computation=two")
    assert two.called == {"branch": [b"one", b"two"]}


def test_what_is_quoted_calls_nothing():
    ins = one(b'%x = f32[] custom-call(%a), custom_call_target="b, calls=%c", calls=%d')
    assert ins.called == {"calls": [b"d"]}
    assert one(b'%x = f32[] fusion(%a), metadata={op_name=", calls=%c"}').called == {}


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        (b"kind=kLoop, calls=%f", b"f"),
        (b'metadata={op_name="calls=%no"}', None),
        (b"kind=kLoop", None),
    ],
)
def test_a_fusion_names_what_it_calls(attributes, name):
    assert one(b"%x = f32[4]{0} fusion(%a), " + attributes).fused == name


def test_raw_line_ends_begin_no_instruction():
    hlo_graph = graph(TEXT.replace(b'{"known', b'{"raw":\n  "text",\n"known'))
    assert hlo_graph.find(2, b"w").trip_count == 12
    assert hlo_graph.find(2, b"r").number == 1


@pytest.mark.parametrize("text", [
    b"", b"\n", b"ENTRY", b"%c (", b"%c () -> f32[] {", b"ENTRY %e {\n  %x = \n}",
    b"ENTRY %e {\n  %x = f32[]\n  ROOT %y = (f32[] add(\n",
    b"ENTRY %e {\n  ROOT %x = (((( while(\n",
    b"%e {\n  %x = s32[] while((((%x), body=%e, condition=%e, body={%e\n}\n",
    b" while( while( while(", b'%e {\n  %x = f32[] while(%x), metadata={op_name="' + b" while(" * 9,
])  # fmt: skip
def test_damaged_texts_are_left_out(text):
    hlo_graph = graph(text)
    loops_of(text, loops_in(text))
    for name in (b"e", b"c", b"x"):
        if (root := hlo_graph.root(name)) is not None:
            assert root.operands is not None
            assert root.called is not None
    for name, home in hlo_graph.homes([b"x", b"y"]).items():
        if (ins := hlo_graph.find(home, name)) is not None:
            assert (ins.metadata, ins.trip_count) is not None
        assert hlo_graph.caller(home) is None or hlo_graph.caller(home)[0].opcode == "while"


def test_loops_have_their_metadata():
    assert loops_of(TEXT, loops_in(TEXT)) == [{"op_name": b"jit(f)/while", "stack_frame_id": 7}]
    assert loops_in(TEXT.replace(b" while(", b" whilst(")) == []
