"""Work and estimates of instructions, through loops, fusions and branches."""

import pytest

from bufdb.read.hlo_graph import HloGraph, loops_in
from bufdb.rows import instruction_costs

DOT = "dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
LOOP = """
%body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p = (s32[], f32[4,8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %a = f32[4,8] get-tuple-element(%p), index=1
  %b = f32[8,8] constant({...})
  %one = s32[] constant(STEP)
  %next = s32[] add(%i, %one)
  %dot.1 = f32[4,8] DOT
  ROOT %t = (s32[], f32[4,8]) tuple(%next, %dot.1)
}

%condition (q: (s32[], f32[4,8])) -> pred[] {
  %q = (s32[], f32[4,8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %limit = s32[] constant(LIMIT)
  ROOT %less = pred[] compare(%j, %limit), direction=LT
}

ENTRY %main (x: f32[4,8]) -> f32[4,8] {
  %x = f32[4,8] parameter(0)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[4,8]) tuple(%zero, %x)
  %while.1 = (s32[], f32[4,8]) while(%begin), condition=%condition, body=%body
  ROOT %out = f32[4,8] get-tuple-element(%while.1), index=1
}
""".replace("DOT", DOT)


def costs(text):
    """Rows by instruction."""
    data = text.lstrip("\n").encode()
    rows = instruction_costs.rows_of(HloGraph(data, loops_in(data)))
    return {name.decode(): tuple(cells) for name, *cells in rows}


@pytest.mark.parametrize(
    ("limit", "step", "trips"), [("6", "1", 6), ("6", "4", 2), ("0", "1", 0), ("-1", "1", 0)]
)
def test_the_counter_of_a_loop_says_its_trips(limit, step, trips):
    costs_by_name = costs(LOOP.replace("LIMIT", limit).replace("STEP", step))
    assert costs_by_name == {"dot.1": (trips, trips * 512, None, None, None)}


def test_what_xla_prints_of_trips_goes_first():
    config = ', backend_config={"known_trip_count":{"n":"10"}}'
    costs_by_name = costs(LOOP.replace("LIMIT", "6").replace("body=%body", f"body=%body{config}"))
    assert costs_by_name["dot.1"][:2] == (10, 5120)


@pytest.mark.parametrize(
    "change",
    [
        ("%limit = s32[] constant(LIMIT)", "%limit = s32[] negate(%j)"),
        ("add(%i, %one)", "multiply(%i, %one)"),
        ("constant(STEP)", "constant(-1)"),
        ("tuple(%zero, %x)", "tuple(%counted, %x)"),
    ],
)
def test_a_loop_that_does_not_say_its_trips_has_no_figure(change):
    text = LOOP.replace(*change).replace("LIMIT", "6").replace("STEP", "1")
    why = "while.1 does not say how often it loops"
    assert costs(text) == {"dot.1": (None, None, None, why, None)}


def test_what_is_fused_counts_for_its_fusion():
    text = f"""
%fused (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {{
  %a = f32[4,8] parameter(0)
  %b = f32[8,2] parameter(1)
  ROOT %dot.1 = f32[4,2] {DOT}
}}

ENTRY %main (x: f32[4,8], y: f32[8,2]) -> f32[4,2] {{
  %x = f32[4,8] parameter(0)
  %y = f32[8,2] parameter(1)
  ROOT %fusion.1 = f32[4,2] fusion(%x, %y), kind=kOutput, calls=%fused
}}
"""
    assert costs(text) == {"fusion.1": (1, 128, None, None, None)}


ENTRY = """
ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
  %a = f32[4,8] parameter(0)
  %b = f32[8,2] parameter(1)
  ROOT %it = f32[4,2] LINE
}
"""


def test_a_library_call_that_may_be_a_product_is_unknown():
    line = 'custom-call(%a, %b), custom_call_target="tpu_custom_call"'
    why = "it calls tpu_custom_call, whose operations its shapes do not tell"
    assert costs(ENTRY.replace("LINE", line)) == {"it": (1, None, None, why, None)}
    assert costs(ENTRY.replace("LINE", line.replace("tpu_custom_call", "TopK"))) == {}


def test_a_matmul_of_cublas_is_counted():
    line = (
        'custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config='
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    )
    assert costs(ENTRY.replace("LINE", line)) == {"it": (1, 128, None, None, None)}


@pytest.mark.parametrize("quote", ['"', r"\""])
def test_an_estimate_is_read(quote):
    config = '{"window_config":{"estimated_cycles":"70416"}}'.replace('"', quote)
    line = f"fusion(%a, %b), kind=kOutput, calls=%none, backend_config={config}"
    assert costs(ENTRY.replace("LINE", line)) == {"it": (1, None, 70416, None, None)}


def test_an_estimate_that_is_none_is_unknown():
    line = f'copy(%a), backend_config={{"estimated_cycles":"{2**63 - 1}"}}'
    why = f"the compiler prints {2**63 - 1}, which is not an estimate"
    assert costs(ENTRY.replace("LINE", line)) == {"it": (1, None, None, None, why)}


def test_a_branch_has_no_figure():
    text = f"""
%yes (p: (f32[4,8], f32[8,2])) -> f32[4,2] {{
  %p = (f32[4,8], f32[8,2]) parameter(0)
  %a = f32[4,8] get-tuple-element(%p), index=0
  %b = f32[8,2] get-tuple-element(%p), index=1
  ROOT %dot.1 = f32[4,2] {DOT}
}}

ENTRY %main (i: s32[], t: (f32[4,8], f32[8,2])) -> f32[4,2] {{
  %i = s32[] parameter(0)
  %t = (f32[4,8], f32[8,2]) parameter(1)
  ROOT %c = f32[4,2] conditional(%i, %t, %t), branch_computations={{%yes, %yes}}
}}
"""
    why = "c decides which branch runs"
    assert costs(text) == {"dot.1": (None, None, None, why, None)}
