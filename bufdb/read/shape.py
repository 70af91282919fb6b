"""Shapes: `f32[16,<=32]{1,0:T(8,128)S(1)}` parsed, and their bare size (format section 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

_ARRAY = re.compile(r"([a-z][a-z0-9_]*)\[([^\]]*)\](\{.*\})?", re.DOTALL)
_DIMENSION = re.compile(r"(<=)?(\d{1,18})|\?")
_WIDTH = re.compile(r"^(?:f|bf|s|u|c)(\d{1,4})")
_BITS = re.compile(r"E\((\d{1,18})\)")
_SPACE = re.compile(r"S\((\d{1,18})\)")
_COMMENT = re.compile(r"/\*index=\d+\*/")
_MARK = re.compile(r"[(){}\[\],]")
LIMIT = 2**63


@dataclass(frozen=True)
class Shape:
    """A parsed shape; a row of `shapes`."""

    text: str
    dtype: str | None = None
    dimensions: tuple[int | None, ...] | None = None
    dimensions_text: str | None = None
    layout: str | None = None
    memory_space: int | None = None
    element_count: int | None = None
    logical_bytes: int | None = None
    is_tuple: bool = False


@lru_cache(maxsize=65536)
def shape_of(text: str) -> Shape:
    """Parse a shape; one that is not understood has only its text."""
    if text.startswith("("):
        elements = elements_of(text)
        if elements is None:
            return Shape(text, is_tuple=True)
        count = len(elements)
        return Shape(text, "tuple", element_count=count, logical_bytes=8 * count, is_tuple=True)
    if text.startswith("b(") and text.endswith(")"):
        inner = text[2:-1]
        if inner.startswith("b("):  # a buffer holds no buffer
            return Shape(text)
        return replace(shape_of(inner), text=text, is_tuple=False)
    match = _ARRAY.fullmatch(text)
    if match is None:
        return Shape(text)
    dtype, dimensions_text, layout = match.groups()
    attributes = (layout or "").partition(":")[2]
    space = _SPACE.search(_without_nested(attributes))
    memory_space = int(space[1]) if space else 0
    if dtype in ("token", "opaque"):
        bare = 0 if dtype == "token" else 8
        return Shape(text, dtype, None, dimensions_text, layout, memory_space, 1, bare)
    dimensions: list[int | None] = []
    for part in dimensions_text.split(",") if dimensions_text else []:
        dimension = _DIMENSION.fullmatch(part.strip())
        if dimension is None:
            return Shape(text)
        dimensions.append(int(dimension[2]) if dimension[2] else None)
    count = _product(dimensions)
    bits = _bits(dtype, attributes)
    size: int | None = None if bits is None or count < 0 else -(-count * bits // 8)
    return Shape(
        text,
        dtype,
        tuple(dimensions),
        dimensions_text,
        layout,
        memory_space,
        count if 0 <= count < LIMIT else None,
        size if size is not None and size < LIMIT else None,
    )


def _product(dimensions: list[int | None]) -> int:
    """Return the number of elements; -1 if a dimension is unknown; inexact past 128 bits."""
    if None in dimensions:
        return -1
    count = 0 if 0 in dimensions else 1
    for dimension in dimensions:
        count *= dimension or 0
        if count >= 1 << 128:
            break
    return count


def _bits(dtype: str, attributes: str) -> int | None:
    """Return the bits of an element: as packed by the layout, else the type's, at least a byte."""
    packed = _BITS.search(_without_nested(attributes))
    if packed:
        return int(packed[1])
    if dtype == "pred":
        return 8
    width = _WIDTH.match(dtype)
    return max(8, int(width[1])) if width else None


def _without_nested(attributes: str) -> str:
    """Return layout attributes without the shape that P(…) may hold."""
    start = attributes.find("P(")
    if start < 0:
        return attributes
    depth = 0
    for end in range(start + 1, len(attributes)):
        depth += (attributes[end] == "(") - (attributes[end] == ")")
        if depth == 0:
            return attributes[:start] + attributes[end + 1 :]
    return attributes[:start]


def shape_at(text: str, index: Sequence[int]) -> Shape:
    """Return the shape at a place in a shape; one without text if there is no such place."""
    for number in index:
        elements = (elements_of(text) if text.startswith("(") else None) or ()
        text = elements[number] if number < len(elements) else ""
    return shape_of(text)


@lru_cache(maxsize=256)
def elements_of(text: str) -> tuple[str, ...] | None:
    """Return the shapes of the elements of a tuple shape; None if its brackets are not closed."""
    body = _COMMENT.sub("", text)
    if body == "()":
        return ()
    depth, bounds = 0, [0]
    for mark in _MARK.finditer(body):
        if mark[0] == ",":
            bounds += [mark.start()] if depth == 1 else []
        else:
            depth += 1 if mark[0] in "({[" else -1
    if depth or not body.endswith(")"):
        return None
    ends = [*bounds[1:], len(body) - 1]
    parts = zip(bounds, ends, strict=True)
    return tuple(body[start + 1 : end].strip() for start, end in parts)
