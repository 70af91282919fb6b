"""Whose doing a jump is, and what dumps after each pass say of it."""

import pytest

from bufdb.blame.cause import judged
from bufdb.blame.passes import NOT_YET, sentences, states
from bufdb.blame.series import Part

NAMES = ("jax 1", "jax 2")
EXP = Part("exp", "a.py:1", "f32[1024]", "temp", "appeared", 4096, None)
MADE = Part("copy", None, "f32[1024]", "temp", "appeared", 4096, None)


@pytest.mark.parametrize(
    ("before", "after", "control", "moved", "culprit", "sentence"),
    [
        (100, 200, 100, 200, "compiler", "the compiler: jax 2 needs 200 B for the StableHLO of"),
        (100, 200, 104, 197, "compiler", "the compiler"),
        (100, 200, 100, 100, "tracing", "jax's tracing: jax 2 needs 100 B"),
        (100, 200, 100, 150, "unknown", "cannot tell whose doing: jax 2 needs 150 B"),
        (100, 200, 100, 400, "unknown", "a change of +300 B, not of +100 B or none"),
        (100, 200, 150, 200, "unknown", "exported and compiled by jax 1 itself"),
        (200, 100, 200, 100, "compiler", "the compiler"),
        (200, 100, 200, 198, "tracing", "jax's tracing"),
        (100, None, 100, 100, "unknown", "does not say"),
        (100, 200, None, 200, "unknown", "does not say"),
        (100, 100, 100, 100, "unknown", "does not say"),
    ],
)
def test_a_verdict_rests_on_the_old_program_in_both(
    before, after, control, moved, culprit, sentence
):
    verdict = judged(before, after, control, moved, NAMES)
    assert verdict.culprit == culprit
    assert sentence in verdict.sentence


def line(name, opcode, operand="x", op="", shape="f32[1024]"):
    metadata = f', metadata={{op_name="jit(f)/{op}"}}' if op else ""
    return f"  %{name} = {shape}{{0}} {opcode}(%{operand}){metadata}\n"


X = line("x", "parameter", "0")
E, CALL, COPY = (
    line("exp.1", "exponential", op="exp"),
    line("c", "call"),
    line("y", "copy", op="copy"),
)


def dump(folder, *passes):
    """Write a dump after each (pipeline, pass, text)."""
    folder.mkdir()
    for at, (pipeline, name, text) in enumerate(passes):
        file = f"module_0001.jit_f.{at:04d}.{pipeline}.after_{name}.before_next.txt"
        (folder / file).write_text(f"HloModule f\n\nENTRY %main {{\n{X}{text}}}\n")
    (folder / "module_0001.jit_f.cpu_after_optimizations.txt").write_text("HloModule f\n")
    # A constant that was folded: another, smaller program.
    (folder / "module_0002.jit_g.0000.p.after_pipeline-start.txt").write_text("HloModule g\n")
    return states(folder)


@pytest.fixture
def causes(tmp_path):
    def compared(base, new, *parts, delta=4096):
        sides = dump(tmp_path / "base", *base), dump(tmp_path / "new", *new)
        return sentences(*sides, parts, delta)

    return compared


def test_the_first_pass_after_which_programs_differ_is_no_cause(causes):
    start, late = ("p", "pipeline-start", E), ("p", "dce", E)
    base = [start, ("p", "assigner", E + CALL), late]
    new = [start, ("p", "assigner", E), late]
    assert causes(base, new, EXP) == [
        "exp f32[1024] exists before the first pass",
        "all results of 1.00 KiB or more first differ after assigner (p): call 1 → 0; the same at "
        f"the start of p; {NOT_YET}",
    ]


def test_a_value_that_a_pass_makes_begins_there(causes):
    start = ("p", "pipeline-start", E)
    base = [start, ("p", "copy-insertion", E)]
    new = [start, ("p", "only-here", E), ("p", "copy-insertion", E + COPY)]
    made, differ, _ = causes(base, new, MADE)
    assert made == "copy f32[1024] first exists after copy-insertion (p)"
    assert differ.startswith("copy f32[1024] first differ after copy-insertion (p): copy 0 → 1; ")


TWO = E + line("a", "add") + line("b", "add")
ONE = E + line("a", "add")


@pytest.mark.parametrize(("base", "new", "side"), [(ONE, TWO, "old"), (TWO, ONE, "new")])
def test_a_pass_of_one_side_alone_is_named(causes, base, new, side):
    """The pass is not in the other dump, since it was disabled, is newer, or changed nothing."""
    start = ("p", "pipeline-start", TWO)
    one, other = [start, ("p", "dce", TWO)], [start, ("p", "dce", TWO)]
    (one if side == "old" else other).append(("p", "cse", ONE))
    text = causes([*one, ("p", "flatten", base)], [*other, ("p", "flatten", new)])[-1]
    assert text == (
        "all results of 1.00 KiB or more first differ after cse (p), which changed the "
        f"{side} program alone: add 2 → 1; the same after dce (p); {NOT_YET}"
    )


def test_passes_of_both_sides_are_named_where_each_has_its_own(causes):
    start, late = ("p", "pipeline-start", E), ("p", "dce", E + COPY)
    base = [start, ("p", "old", E + CALL), ("p", "dce", E + CALL)]
    text = causes(base, [start, ("q", "new", E + COPY), late])[-1]
    assert (
        "first differ after old (p), which changed the old program alone: call 0 → 1, and new (q), "
        "which changed the new program alone: copy 0 → 1; the same at the start of p; "
    ) in text


def test_a_pass_without_a_difference_is_not_named(causes):
    start = ("p", "pipeline-start", E)
    base = [start, ("p", "early", E + COPY), ("p", "dce", E + COPY), ("p", "late", E + CALL)]
    new = [start, ("p", "dce", E + COPY), ("p", "late", E)]
    text = causes(base, new)[-1]
    assert "first differ after late (p): call 1 → 0; the same after dce (p); " in text
    assert "early" not in text


def test_a_last_pass_of_one_side_alone_is_named(causes):
    start = ("p", "pipeline-start", E)
    text = causes([start], [start, ("p", "split", E + COPY)])[-1]
    assert "first differ after split (p), which changed the new program alone: copy 0 → 1" in text


def test_what_is_within_a_fusion_takes_no_memory(causes):
    """As dot-library-rewriter of jaxlib 0.10 puts a whole program into one fusion."""
    start = ("p", "pipeline-start", E + COPY)
    fused = (
        f"  ROOT %all = f32[] fusion(%x), kind=kCustom, calls=%inside\n}}\n\n%inside {{\n{E + COPY}"
    )
    new = [start, ("dot-library", "rewriter", fused), ("p", "fusion", fused)]
    text = causes([start, ("p", "fusion", E)], new, delta=-4096)[-1]
    assert "first differ after rewriter (dot-library), which changed the new program alone" in text


def test_what_shrank_is_looked_for_in_the_old_program(causes):
    start = ("p", "pipeline-start", E)
    texts = causes([start, ("p", "a", E + COPY)], [start, ("p", "a", E)], MADE, delta=-4096)
    assert texts[0] == "copy f32[1024] first exists after a (p)"


def test_the_same_programs_are_the_same_after_every_pass(causes):
    start = ("p", "pipeline-start", E)
    assert causes([start], [start], EXP)[-1] == (
        "all results of 1.00 KiB or more are the same after every pass that both have"
    )


def test_programs_that_differ_at_once_are_said_to(causes):
    (_, text) = causes([("p", "a", E)], [("p", "a", E + COPY)], EXP)
    assert "differ before the first pass that both have: copy 0 → 1" in text


def test_small_results_are_not_compared(causes):
    small = line("s", "add", shape="f32[8]")
    (text,) = causes([("p", "a", E)], [("p", "a", E + small)])
    assert "are the same" in text


def test_many_small_results_make_a_large_growth(causes):
    """No result is as large as a quarter of the growth; the largest ones are compared."""
    start = ("p", "pipeline-start", E)
    text = causes([start, ("p", "a", E)], [start, ("p", "a", E + CALL)], delta=1 << 20)[-1]
    assert text.startswith("all results of 4.00 KiB or more first differ after a (p): call 0 → 1")


def test_without_dumps_nothing_is_known(causes, tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "new").mkdir()
    assert sentences(states(tmp_path / "base"), states(tmp_path / "new"), [], 1) == [
        "passes: unknown, the compiler dumped none"
    ]
