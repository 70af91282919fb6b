"""Shapes as XLA prints them (format section 3), and those of damaged dumps."""

import pytest

from bufdb.read.shape import shape_of


@pytest.mark.parametrize(
    ("text", "dtype", "element_count", "logical_bytes"),
    [
        ("f32[2,3]{1,0}", "f32", 6, 24),
        ("b(f32[2,3]{1,0})", "f32", 6, 24),
        ("b(b(f32[2,3]{1,0}))", None, None, None),
        ("s4[3]{0:E(4)}", "s4", 3, 2),
        ("f32[4]{0:P(f32[4]{0:S(5)})S(1)}", "f32", 4, 16),
        ("f32[4]{0:P(f32[4]{0:S(5)}", "f32", 4, 16),
        ("f32[999999999999,999999999999,999999999999,999999999999,0]", "f32", 0, 0),
        ("f32[999999999999,999999999999,999999999999,999999999999,9]", "f32", None, None),
    ],
)
def test_what_a_shape_holds(text, dtype, element_count, logical_bytes):
    shape = shape_of(text)
    assert (shape.text, shape.dtype) == (text, dtype)
    assert (shape.element_count, shape.logical_bytes) == (element_count, logical_bytes)


@pytest.mark.parametrize(
    ("layout", "space"), [("0:P(f32[4]{0:S(5)})S(1)", 1), ("0:P(f32[4]{0:S(5)}", 0)]
)
def test_the_space_of_what_a_pointer_leads_to_is_not_the_shapes(layout, space):
    assert shape_of(f"f32[4]{{{layout}}}").memory_space == space
