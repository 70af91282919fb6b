"""Operations of instructions, counted by hand."""

import pytest

from bufdb.read.hlo_graph import HloGraph
from bufdb.rows.costs import Operations


def count(line, *others, computations=""):
    """Count the operations of a line named %r, with other lines in its computation."""
    lines = "".join(f"  {other}\n" for other in (*others, line))
    text = f"{computations}ENTRY %main (a: f32[]) -> f32[] {{\n{lines}}}\n".encode()
    graph = HloGraph(text, [])
    ins = graph.find(len(graph._starts) - 1, b"r")
    assert ins is not None
    return Operations(graph).of(ins)


A = "%a = f32[6,4,3]{2,1,0} parameter(0)"
B = "%b = f32[6,3,5]{2,1,0} parameter(1)"


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        ("%r = f32[6,4,3]{2,1,0} tanh(%a)", 72),
        ("%r = (f32[6,4,3]{2,1,0}, f32[]) add(%a, %a)", 72),
        ("%r = f32[6,3,4]{2,1,0} transpose(%a), dimensions={0,2,1}", 0),
        ("%r = f32[6,4,5]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
         "rhs_batch_dims={0}, rhs_contracting_dims={1}", 2 * 120 * 3),
        ("%r = f32[6,4,5]{2,1,0} dot(%a, %b), lhs_contracting_dims={7}", None),
        ("%r = f32[6,4,5]{2,1,0} dot(%a, %nowhere), lhs_contracting_dims={2}", 720),
        ("%r = f32[6,4,5]{2,1,0} dot(%nowhere, %b), lhs_contracting_dims={2}", None),
        ('%r = (f32[6,4,5]{2,1,0}, s8[4]) custom-call(%a, %b), custom_call_target="__cublas$gemm", '
         'backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
         '{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"]}}}', 720),
        ('%r = f32[6,4,3]{2,1,0} custom-call(%a), custom_call_target="Sharding"', None),
        ("%r = f32[6]{0} reduce(%a, %a), dimensions={1,2}, to_apply=%sum", 72 - 6),
        ("%r = f32[6]{0} reduce(%a, %a), dimensions={1,2}, to_apply=%none", None),
        ("%r = f32[6,4,3]{2,1,0} map(%a, %a), to_apply=%sum", 72),
        ("%r = f32[6,2,3]{2,1,0} reduce-window(%a, %a), window={size=1x2x1 stride=1x2x1}, "
         "to_apply=%sum", 36),
        ("%r = f32[6,2,3]{2,1,0} reduce-window(%a, %a), to_apply=%sum", None),
        ("%r = f32[6,4,3]{2,1,0} all-reduce(%a), to_apply=%sum", None),
        ("%r = f32[6,4,3]{2,1,0} fusion(%a), kind=kLoop, calls=%fused", 72 * 2),
        ("%r = f32[6,4,3]{2,1,0} fusion(%a), kind=kLoop, calls=%itself", None),
        ("%r = f32[6,4,3]{2,1,0} fusion(%a), kind=kLoop, calls=%none", None),
        ("%r = f32[?,3]{1,0} tanh(%a)", None),
        ("%r = f32[99999999999999999999]{0} tanh(%a)", None),
    ],
)  # fmt: skip
def test_operations_follow_from_shapes(line, operations):
    computations = (
        "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
        # Used twice, computed once.
        "%fused (p: f32[6,4,3]) -> f32[6,4,3] {\n  %p = f32[6,4,3]{2,1,0} parameter(0)\n"
        "  %e = f32[6,4,3]{2,1,0} exponential(%p)\n"
        "  ROOT %m = f32[6,4,3]{2,1,0} multiply(%e, %e)\n}\n\n"
        "%itself (p: f32[6,4,3]) -> f32[6,4,3] {\n"
        "  ROOT %f = f32[6,4,3]{2,1,0} fusion(%f), kind=kLoop, calls=%itself\n}\n\n"
    )
    assert count(line, A, B, computations=computations) == operations


WINDOWS = [
    # window, input, kernel and result sizes, pairs that meet
    ("size=3", 5, 3, 3, 9),
    ("size=3 pad=1_1", 5, 3, 5, 13),
    ("size=3 stride=2 pad=1_1", 5, 3, 3, 7),
    ("size=2 rhs_dilate=3", 5, 2, 2, 4),
    ("size=3 pad=2_2 lhs_dilate=2", 3, 3, 7, 9),
    ("size=3 stride=2 pad=1_0 lhs_dilate=2", 3, 3, 3, 3),
    ("size=2 pad=0_0 stride=0", 5, 2, 4, None),
]


@pytest.mark.parametrize(("window", "inputs", "kernel", "results", "pairs"), WINDOWS)
def test_a_convolution_counts_where_weights_meet_inputs(window, inputs, kernel, results, pairs):
    line = (
        f"%r = f32[7,{results},11]{{2,1,0}} convolution(%x, %w), "
        f"window={{{window}}}, dim_labels=b0f_0io->b0f"
    )
    operand = f"%x = f32[7,{inputs},4]{{2,1,0}} parameter(0)"
    weights = f"%w = f32[{kernel},4,11]{{2,1,0}} parameter(1)"
    operation_count = count(line, operand, weights)
    assert operation_count == (None if pairs is None else 2 * 7 * 4 * 11 * pairs)


@pytest.mark.parametrize(
    "labels",
    ["b0f_0io->b0", "b0f_0io->b01f", "b0f_0io->00f", "b0f_0ii->b0f", "b0f_1io->b0f", "no labels"],
)
def test_a_convolution_whose_labels_do_not_fit_has_no_figure(labels):
    line = f"%r = f32[7,3,11]{{2,1,0}} convolution(%x, %w), dim_labels={labels}"
    operands = "%x = f32[7,5,4]{2,1,0} parameter(0)", "%w = f32[3,4,11]{2,1,0} parameter(1)"
    assert count(line.replace(labels, "b0f_0io->b0f"), *operands) is not None
    assert count(line, *operands) is None


FUSED = """%fused (p: f32[10], q: f32[10]) -> f32[10] {
  %p = f32[10]{0} parameter(0)
  %q = f32[10]{0} parameter(1)
  %e = f32[10]{0} exponential(%p)
  %n = f32[10]{0} negate(%e)
  %other = f32[10]{0} sine(%n)
  %moved = f32[5,2]{1,0} reshape(%q)
  ROOT %r = f32[10]{0} add(%n, %e)
}

ENTRY %main (a: f32[10]) -> f32[10] {
  %a = f32[10]{0} parameter(0)
  %dear = f32[10]{0} sort(%a), dimensions={0}
  %cheap = f32[10]{0} tanh(%a)
  ROOT %f = f32[10]{0} fusion(%dear, %cheap), kind=kLoop, calls=%fused
}
"""


def fused(name, text=FUSED):
    graph = HloGraph(text.encode(), [])
    return Operations(graph).of(graph.find(0, name))


def test_everything_that_leads_to_a_fused_operation_counts():
    assert fused(b"r") == 30
    assert fused(b"n") == 20
    assert fused(b"r", FUSED.replace("negate(", "all-reduce(")) is None


def test_what_only_moves_data_costs_what_they_do():
    assert fused(b"moved") == 10  # tanh, which the fusion reads
    assert fused(b"moved", FUSED.replace("(%dear, %cheap)", "(%cheap, %dear)")) is None
    assert fused(b"moved", FUSED.replace("(%dear, %cheap)", "(%dear)")) is None
    assert fused(b"moved", FUSED.replace("calls=%fused", "calls=%nowhere")) is None
    operands = "%a = f32[6,4]{1,0} parameter(0)", "%t = f32[6,4]{1,0} tanh(%a)"
    both = "%r = f32[12,4]{1,0} concatenate(%b, %b, %t), dimensions={0}"
    assert count(both, *operands, "%b = f32[4,6]{1,0} transpose(%t)") == 24
    assert count("%r = f32[4,6]{1,0} transpose(%a), dimensions={1,0}", *operands) == 0


def test_what_a_loop_is_given_is_made_elsewhere():
    text = """%body (c: (f32[4])) -> (f32[4]) {
  %c = (f32[4]{0}) parameter(0)
  %g = f32[4]{0} get-tuple-element(%c), index=0
  ROOT %t = (f32[4]{0}) tuple(%g)
}

ENTRY %main (a: (f32[4])) -> (f32[4]) {
  %a = (f32[4]{0}) parameter(0)
  ROOT %w = (f32[4]{0}) while(%a), condition=%cond, body=%body
}
"""
    graph = HloGraph(text.encode(), [text.index(" while(")])
    assert Operations(graph).of(graph.find(0, b"g")) is None
    assert Operations(graph).of(graph.find(1, b"w")) is None


def test_calls_that_go_deeper_than_any_of_xlas_have_no_figure():
    """A damaged text may call from computation to computation for ever so long."""
    steps = [
        f"%c{n} (p: f32[10]) -> f32[10] {{\n  %p = f32[10]{{0}} parameter(0)\n"
        f"  ROOT %f = f32[10]{{0}} fusion(%p), kind=kLoop, calls=%c{n + 1}\n}}\n\n"
        for n in range(3000)
    ]
    last = "%c3000 (p: f32[10]) -> f32[10] {\n  ROOT %t = f32[10]{0} tanh(%p)\n}\n\n"
    computations = "".join(steps) + last
    call = "%r = f32[10]{0} fusion(%a), kind=kLoop, calls=%c"
    operand = "%a = f32[10]{0} parameter(0)"
    assert count(f"{call}0", operand, computations=computations) is None
    assert count(f"{call}2995", operand, computations=computations) == 10
