"""The scratch memory of kernels in a sentence, and the last value of a sweep that compiles."""

import pytest

from bufdb.answers.kernels import edge, sentence


def row(used=12 << 20, limit=16 << 20, name="mm.1", target="tpu_custom_call"):
    ratio = None if None in (used, limit) else used / limit
    return {"instruction_name": name, "target": target, "memory_space_name": "vmem",
            "used_bytes": used, "limit_bytes": limit, "used_ratio": ratio,
            "source": "k.py:7"}  # fmt: skip


@pytest.mark.parametrize(
    ("some", "text"),
    [
        ([row()], "uses 12.0 MiB of 16.0 MiB of vmem memory (75.0%), k.py:7; bufdb query kernels"),
        (
            [row(limit=None)] * 3,
            "uses 12.0 MiB of vmem memory, k.py:7; 2 more: bufdb query kernels",
        ),
        ([row(None)], "uses vmem memory of unknown size, k.py:7; bufdb query kernels"),
    ],
)
def test_a_sentence(some, text):
    assert sentence(some) == f"kernel mm.1 {text}"


def test_fusions_of_the_compiler_are_no_kernels_of_the_program():
    assert sentence([row(target=None)]) is None
    assert sentence([]) is None


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ([("b=8", True), ("b=32", False), ("b=16", True)], "b=16 is the largest"),
        ([("l=1", False), ("l=8", True), ("l=9", True)], "l=8 is the least"),
        ([("b=8", True), ("b=16", True)], None),
        ([("b=8", False)], None),
        ([("b=8", True), ("b=16", False), ("b=32", True)], None),
        ([("m=full", True), ("m=dots", False)], None),
        ([("b=8 s=1", True), ("b=16 s=1", False)], None),
    ],
)
def test_the_last_value_that_compiles(outcomes, text):
    made = edge([(values, is_compiled, []) for values, is_compiled in outcomes])
    assert made == (text and f"{text} that compiles, of those tried")
    with_kernel = edge([(values, is_compiled, [row()]) for values, is_compiled in outcomes])
    assert (with_kernel or "").endswith("; bufdb query kernels" if text else "")
