"""Stacks left out of what a scan saves, in bodies of a few lines."""

import numpy as np
import pytest

from bufdb.memory.needs import Kept, Needs, together
from bufdb.read.hlo_graph import HloGraph
from bufdb.rows import residual_layers, residuals
from bufdb.rows.loop_places import Places
from bufdb.rows.residual_layers import Layer, TooLargeError
from bufdb.rows.residuals import columns_of

F = "f32[2,8]{1,0}"
STACK = "f32[6,2,8]{2,1,0}"


def ins(name, line, rest, shape=F):
    """A line of HLO text, of a line of m.py unless that is 0."""
    where = f', metadata={{op_name="jit(f)/jvp()/while/body/x" source_file="m.py" ' \
        f"source_line={line}}}"  # fmt: skip
    return f"  {name} = {shape} {rest}{where if line else ''}\n"


def body(*lines, carry="%h"):
    """A body whose element 0 is carried, 1 scanned, 2 and 3 stacks; 9 is the line of the loop."""
    elements = [ins(f"%e{n}", 0, f"get-tuple-element(%p), index={n}", shape)
                for n, shape in enumerate([F, "f32[6,8,8]{2,1,0}", STACK, STACK])]  # fmt: skip
    return (
        "%body (p: (f32[2,8])) -> (f32[2,8]) {\n"
        f"  %p = ({F}, f32[6,8,8]{{2,1,0}}, {STACK}, {STACK}) parameter(0)\n"
        + "".join(elements)
        + ins("%w", 9, "dynamic-slice(%e1, %e1)", "f32[8,8]{1,0}")
        + "".join(lines)
        + f"  ROOT %t = ({F}, f32[6,8,8]{{2,1,0}}, {STACK}, {STACK}) tuple({carry}, %e1, %u2, %u3)"
        "\n}\n"
    )


def update(number, of):
    """A slice inserted into a stack."""
    return ins(f"%u{number}", 9, f"dynamic-update-slice(%e{number}, {of}, %e1)", STACK)


def layer(text, budget=1000):
    graph = HloGraph(b"\n" + text.encode(), [])
    loop = {"source_file": b"m.py", "source_line": 9, "op_name": b"jit(f)/jvp()/while"}
    return Layer(graph, Places(None, [loop]), b"body", budget)


def left_out(text, **labels):
    """Return the effect of leaving out each stack (name = line), with names for numbers."""
    made = layer(text)
    numbers = {ins.name.decode(): n for n, node in enumerate(made.nodes) for ins in node.makers}
    stacks = [residual_layers.Stack(made.nodes[numbers[name]].operands[1], f"m.py:{line}", 6, False)
              for name, line in labels.items()]  # fmt: skip

    def named(nodes):
        return {made.nodes[n].makers[0].name.decode() for n in nodes}

    return [(left.form, left.is_gone, named(left.kept), named(left.again))
            for left in residual_layers.leave_out(made, stacks)]  # fmt: skip


SOFTMAX = (
    ins("%s", 3, "dot(%e0, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    + ins("%exp", 4, "exponential(%s)")
    + ins("%prob", 4, "divide(%exp, %exp)")
    + ins("%h", 5, "multiply(%prob, %e0)")
)


def test_a_result_that_another_line_reads_stays():
    text = body(SOFTMAX, update(2, "%exp"), update(3, "%prob"))
    assert left_out(text, u2=4, u3=4) == [
        ("wrap", True, {"s"}, {"exp"}),
        ("wrap", False, set(), set()),
    ]


def test_with_a_policy_the_result_goes_too():
    named = ins("%n", 7, "reduce-precision(%prob), exponent_bits=8, mantissa_bits=23")
    text = body(SOFTMAX, named, update(2, "%exp"), update(3, "%n"))
    assert left_out(text, u2=4, u3=4) == [
        ("policy", True, {"s"}, {"exp"}),
        ("policy", True, {"s"}, {"prob", "exp"}),
    ]


def test_a_policy_keeps_what_another_layout_holds():
    named = ins("%n", 7, "reduce-precision(%turned), exponent_bits=8, mantissa_bits=23")
    turned = ins("%turned", 6, "transpose(%prob), dimensions={0,1}").replace("body/x", "transpose")
    text = body(SOFTMAX, turned, named, update(2, "%exp"), update(3, "%n"))
    assert left_out(text, u3=4) == [("policy", False, set(), set())]


def test_the_carry_is_kept_and_what_is_scanned_is_free():
    text = body(SOFTMAX, update(2, "%s"), update(3, "%prob"))
    assert left_out(text, u2=3) == [("wrap", False, set(), set())]  # line 4 reads it
    alone = ins("%a", 3, "multiply(%e0, %e0)") + ins("%h", 5, "add(%e0, %e0)")
    assert left_out(body(alone, update(2, "%a"), update(3, "%h")), u2=3) == [
        ("wrap", True, {"e0"}, {"a"})
    ]
    # A carry that every step hands on as it is, is free.
    text = body(ins("%a", 3, "multiply(%e0, %w)"), update(2, "%a"), update(3, "%a"), carry="%e0")
    assert left_out(text, u2=3) == [("wrap", True, set(), {"a"})]


def test_equal_instructions_of_several_fusions_are_one():
    fused = (
        "%c (x: f32[2,8]) -> f32[2,8] {\n  %x = f32[2,8]{1,0} parameter(0)\n"
        + ins("ROOT %again", 4, "exponential(%x)")
        + "}\n\n"
    )
    call = ins("%f", 4, "fusion(%s), kind=kLoop, calls=%c")
    use = ins("%q", 8, "negate(%exp)") + ins("%h", 5, "add(%q, %e0)")
    text = body(SOFTMAX.rpartition("  %h")[0], call, use, update(2, "%f"), update(3, "%e0"))
    made = layer(f"{fused}{text}")
    both = {ins.name for node in made.nodes for ins in node.makers if len(node.makers) > 1}
    assert both == {b"again", b"exp"}
    # Line 8 reads the other one.
    assert [left[1] for left in left_out(f"{fused}{text}", u2=4)] == [False]


def test_a_body_larger_than_its_text_is_given_up():
    text = body(SOFTMAX, update(2, "%exp"), update(3, "%prob"))
    with pytest.raises(TooLargeError):
        layer(text, budget=5)


def needs(is_gone, kept=(), again=(), more=()):
    again = dict.fromkeys(again, 10)
    kept = {number: Kept(f"m.py:{number}", 100 * number) for number in kept}
    return Needs("wrap", is_gone, kept, again, again | dict.fromkeys(more, 1000))


def test_what_several_need_counts_once():
    one, two = needs(True, kept=[1, 2], again=[3], more=[1]), needs(True, again=[2, 3], more=[1])
    assert together([one]) == together([one, one])
    total = together([one, two])
    assert (total.kept_bytes, total.kept_name) == (100, "m.py:1")
    assert (total.low_operation_count, total.operation_count) == (20, 1020)
    # What stays costs nothing at the low end.
    total = together([needs(False, more=[1]), one])
    assert (total.kept_bytes, total.kept_name) == (300, "m.py:2, m.py:1")
    assert total.low_operation_count == 10
    unknown = Needs("wrap", True, {}, {1: None}, {1: None})
    assert together([one, unknown]).low_operation_count is None


def test_parts_are_what_the_same_stacks_need():
    columns = columns_of({
        b"u2": needs(True, kept=[5], again=[3, 4], more=[5]),
        b"u3": needs(True, again=[4, 3]),
    })  # fmt: skip
    cells = zip(*(columns[name].labels for name in ("written_by", "part_kind", "kept_name")),
                *(columns[name].tolist() for name in ("part_index", "operation_count",
                                                    "kept_bytes")), strict=True)  # fmt: skip
    assert list(cells) == [
        (b"u2", "again", None, 0, 20, None),
        (b"u2", "all_again", None, 0, 20, None),
        (b"u3", "again", None, 0, 20, None),
        (b"u3", "all_again", None, 0, 20, None),
        (b"u2", "all_again", None, 1, 1000, None),
        (b"u2", "kept", "m.py:5", 1, None, 500),
    ]
    assert columns_of({}) == {}


def test_no_stack_no_number():
    assert residuals.Residuals().numbers(np.array([3, 5])).tolist() == [-1, -1]
