"""Shapes of a serialized module: their text, their size, their places (format section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Index = tuple[int, ...]
"""Place in a tuple shape: () for the whole."""

TUPLE, OPAQUE, TOKEN, BUFFER = 13, 14, 17, 34
_TYPES = {
    **{1: ("pred", 8), 30: ("s1", 1), 26: ("s2", 2), 21: ("s4", 4), 2: ("s8", 8), 3: ("s16", 16)},
    **{4: ("s32", 32), 5: ("s64", 64), 31: ("u1", 1), 27: ("u2", 2), 22: ("u4", 4), 6: ("u8", 8)},
    **{7: ("u16", 16), 8: ("u32", 32), 9: ("u64", 64), 10: ("f16", 16), 11: ("f32", 32)},
    **{16: ("bf16", 16), 12: ("f64", 64), 19: ("f8e5m2", 8), 28: ("f8e4m3", 8)},
    **{20: ("f8e4m3fn", 8), 23: ("f8e4m3b11fnuz", 8), 29: ("f8e3m4", 8), 24: ("f8e5m2fnuz", 8)},
    **{25: ("f8e4m3fnuz", 8), 32: ("f4e2m1fn", 4), 33: ("f8e8m0fnu", 8), 15: ("c64", 64)},
    **{18: ("c128", 128), OPAQUE: ("opaque", 64), TOKEN: ("token", 0)},
}
"""By PrimitiveType of xla_data.proto: name and bits of an element."""
_UNBOUNDED = -(2**63)


def subindices(shape: Any, prefix: Index = ()) -> Iterator[Index]:
    """Yield every place in a shape, the whole first, each tuple before its elements."""
    yield prefix
    if shape.element_type == TUPLE:
        for number, part in enumerate(shape.tuple_shapes):
            yield from subindices(part, (*prefix, number))


def part_of(shape: Any, index: Index) -> Any:
    """Return the shape at a place.

    Raises:
        IndexError: there is no such place.
    """
    for number in index:
        shape = shape.tuple_shapes[number]
    return shape


def bytes_of(shape: Any) -> int:
    """Return the logical size [bytes]: of a tuple the table of pointers (format section 3.2)."""
    kind = shape.element_type
    if kind == TUPLE:
        return 8 * len(shape.tuple_shapes)
    if kind not in _TYPES or kind == TOKEN:
        return 0
    bits = _TYPES[kind][1]
    if kind != OPAQUE:
        bits = shape.layout.element_size_in_bits or bits
        for size in shape.dimensions:
            bits *= size
    return int(bits + 7) // 8


def text_of(shape: Any, with_layout: bool = True) -> str:
    """Return a shape as XLA prints it."""
    kind = shape.element_type
    if kind in (TUPLE, BUFFER):
        parts = [text_of(part, with_layout) for part in shape.tuple_shapes]
        if kind == BUFFER:
            return f"b({', '.join(parts)})"
        for number in range(5, len(parts), 5):
            parts[number] = f"/*index={number}*/{parts[number]}"
        return f"({', '.join(parts)})"
    name = _TYPES[kind][0] if kind in _TYPES else f"type{kind}"
    dimensions = shape.dimensions
    if shape.is_dynamic_dimension:
        sizes = ",".join(map(_size, dimensions, shape.is_dynamic_dimension))
    else:
        sizes = ",".join(map(str, dimensions)) if dimensions else ""
    if not with_layout or kind in (TOKEN, OPAQUE) or not shape.HasField("layout"):
        return f"{name}[{sizes}]"
    layout = shape.layout
    more = _attributes(layout)
    if not dimensions and not more:
        return f"{name}[{sizes}]"
    order = ",".join(map(str, layout.minor_to_major))
    return f"{name}[{sizes}]{{{order}{':' + more if more else ''}}}"


def _size(size: int, is_dynamic: bool) -> str:
    if size < 0:
        return "?"
    return f"<={size}" if is_dynamic else str(size)


def _attributes(layout: Any) -> str:
    """Return what follows the colon of a layout, in the order of XLA's `Layout::Print`."""
    more = ""
    if layout.tiles:
        tiles = (",".join(map(_tile, tile.dimensions)) for tile in layout.tiles)
        more = "T" + "".join(f"({tile})" for tile in tiles)
    if layout.tail_padding_alignment_in_elements > 1:
        more += f"L({layout.tail_padding_alignment_in_elements})"
    if layout.index_primitive_type:
        more += f"#({_integer(layout.index_primitive_type)})"
    if layout.pointer_primitive_type:
        more += f"*({_integer(layout.pointer_primitive_type)})"
    if layout.element_size_in_bits:
        more += f"E({layout.element_size_in_bits})"
    if layout.memory_space:
        more += f"S({layout.memory_space})"
    if layout.split_configs:
        more += "SC" + "".join(map(_split, layout.split_configs))
    if layout.HasField("physical_shape"):
        more += f"P({text_of(layout.physical_shape)})"
    if layout.dynamic_shape_metadata_prefix_bytes > 0:
        more += f"M({layout.dynamic_shape_metadata_prefix_bytes})"
    return more


def _integer(kind: int) -> str:
    """Return the name of an integer type, as those of indices and pointers are."""
    name, _ = _TYPES.get(kind, ("", 0))
    return name if name[:1] in ("s", "u") else "invalid"


def _split(config: Any) -> str:
    """Return where a dimension is cut between the cores of a chip."""
    return f"({config.dimension}:{','.join(map(str, config.split_indices))})"


def _tile(size: int) -> str:
    return "*" if size == _UNBOUNDED else str(size)
