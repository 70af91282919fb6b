"""Attributes of instructions as HLO text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from bufdb.proto.graph import Module
from bufdb.proto.messages import Instructions
from bufdb.proto.shapes import Index

# -- Words of an HLO text: text between quotes and in braces ---------------------------------------

_ESCAPED = [
    *(f"\\{byte:03o}" for byte in range(32)),
    *(chr(byte) for byte in range(32, 127)),
    *(f"\\{byte:03o}" for byte in range(127, 256)),
]
for _byte, _escape in (
    (9, "\\t"),
    (10, "\\n"),
    (13, "\\r"),
    (34, '\\"'),
    (39, "\\'"),
    (92, "\\\\"),
):
    _ESCAPED[_byte] = _escape


def braces(numbers: Iterable[int]) -> str:
    """Return a list of numbers as it is printed."""
    return f"{{{','.join(map(str, numbers))}}}"


@lru_cache(maxsize=1 << 14)
def index_text(index: Index) -> str:
    """Return a shape index as it is printed."""
    return braces(index)


def escaped(text: bytes) -> str:
    """Return text to put between quotes, as C escapes it."""
    return "".join([_ESCAPED[byte] for byte in text])


def quoted(text: bytes) -> str:
    """Return text between quotes."""
    if text.isascii() and b'"' not in text and b"\\" not in text and b"'" not in text:
        plain = text.decode("ascii")
        if plain.isprintable():
            return f'"{plain}"'
    return f'"{escaped(text)}"'


@lru_cache(maxsize=256)
def word(text: bytes) -> str:
    """Return a word as XLA prints it; a text that is no word is escaped and cannot end a line."""
    return text.decode("ascii") if text.isalnum() and text.isascii() else escaped(text)


# -- The text after the brackets of an instruction: attributes, called computations, sharding ------

_ROLES = {"call": "to_apply", "fusion": "calls", "async-start": "calls", "while": "body"}
_NO_ROLE = frozenset(("async-update", "async-done"))
_SHARDINGS = {0: "{replicated}", 4: "{manual}", 5: "{unknown}", 6: "{unreduced}"}
_TILE_DIMS = {0: "replicated", 4: "manual", 6: "unreduced"}
_COLLECTIVE = ("all-", "collective-", "ragged-", "reduce-scatter")
"""Prefixes of the opcodes of collectives: groups of devices are read only for these."""


def own_attributes(x: Any, opcode: str) -> tuple[str, str]:
    """Return an instruction's own attributes, and its sharding, as printed after the brackets."""
    own = "" if opcode == "parameter" else "".join([f", {text}" for text in _own(x, opcode)])
    sharding = _sharding(x.sharding) if x.HasField("sharding") else None
    return own, "" if sharding is None else f", sharding={sharding}"


def _own(x: Any, opcode: str) -> Iterator[str]:
    """Yield the attributes that some opcodes have; a parameter has none of them."""
    if x.dimensions or opcode == "broadcast":
        yield f"dimensions={braces(x.dimensions)}"
    if x.HasField("window") and x.window.dimensions:
        yield f"window={{{_window(x.window.dimensions)}}}"
    if x.HasField("convolution_dimension_numbers"):
        yield f"dim_labels={_labels(x.convolution_dimension_numbers)}"
        for name in ("feature_group_count", "batch_group_count"):
            if getattr(x, name) > 1:
                yield f"{name}={getattr(x, name)}"
    if x.HasField("dot_dimension_numbers"):
        yield from _contraction(x.dot_dimension_numbers)
    if x.comparison_direction:
        yield f"direction={word(x.comparison_direction)}"
    if x.channel_id > 0:
        yield f"channel_id={x.channel_id}"
    if opcode.startswith(_COLLECTIVE):
        yield from _groups(x)
    if x.custom_call_target:
        yield f"custom_call_target={quoted(x.custom_call_target)}"
    if opcode == "fusion" and x.fusion_kind:
        yield f"kind={word(x.fusion_kind)}"


def calls(m: Module, instructions: Instructions, i: int) -> str:
    """Return the computations that an instruction calls, by their roles."""
    opcode, called = instructions.opcodes[i], instructions.called[i]
    if opcode in _NO_ROLE:
        return ""
    names = [f"%{m.titles.get(c, 'unknown')}" for c in called]
    if opcode == "while" and len(names) == 2:
        return f", condition={names[1]}, body={names[0]}"
    if opcode == "conditional":
        selector = instructions.first_operand(i)
        is_predicate = selector in m.at and m.shape(m.at[selector]).element_type == 1
        if len(names) == 2 and is_predicate:
            return f", true_computation={names[0]}, false_computation={names[1]}"
        return f", branch_computations={{{', '.join(names)}}}"
    if opcode == "select-and-scatter" and len(names) == 2:
        return f", select={names[0]}, scatter={names[1]}"
    if opcode == "custom-call":
        return f", called_computations={{{', '.join(names)}}}"
    return f", {_ROLES.get(opcode, 'to_apply')}={names[0]}"


def _window(dimensions: Any) -> str:
    fields = [f"size={'x'.join(str(d.size) for d in dimensions)}"]
    if any(d.stride != 1 for d in dimensions):
        fields.append(f"stride={'x'.join(str(d.stride) for d in dimensions)}")
    if any(d.padding_low or d.padding_high for d in dimensions):
        pads = "x".join(f"{d.padding_low}_{d.padding_high}" for d in dimensions)
        fields.append(f"pad={pads}")
    if any(d.base_dilation != 1 for d in dimensions):
        fields.append(f"lhs_dilate={'x'.join(str(d.base_dilation) for d in dimensions)}")
    if any(d.window_dilation != 1 for d in dimensions):
        fields.append(f"rhs_dilate={'x'.join(str(d.window_dilation) for d in dimensions)}")
    if any(d.window_reversal for d in dimensions):
        fields.append(f"rhs_reversal={'x'.join(str(int(d.window_reversal)) for d in dimensions)}")
    return " ".join(fields)


def _labels(numbers: Any) -> str:
    """Return which dimension is which, of a convolution's input, kernel and result."""

    def labels(first: str, at: int, second: str, after: int, spatial: Sequence[int]) -> str:
        where = {at: first, after: second, **{d: str(n) for n, d in enumerate(spatial)}}
        return "".join(where.get(d, "?") for d in range(len(spatial) + 2))

    n = numbers
    lhs = labels(
        "b", n.input_batch_dimension, "f", n.input_feature_dimension, n.input_spatial_dimensions
    )
    kernel = labels(
        "i",
        n.kernel_input_feature_dimension,
        "o",
        n.kernel_output_feature_dimension,
        n.kernel_spatial_dimensions,
    )
    out = labels(
        "b", n.output_batch_dimension, "f", n.output_feature_dimension, n.output_spatial_dimensions
    )
    return f"{lhs}_{kernel}->{out}"


def _contraction(numbers: Any) -> Iterator[str]:
    for side in ("lhs", "rhs"):
        batch = getattr(numbers, f"{side}_batch_dimensions")
        if batch:
            yield f"{side}_batch_dims={braces(batch)}"
        summed = getattr(numbers, f"{side}_contracting_dimensions")
        yield f"{side}_contracting_dims={braces(summed)}"


def _groups(x: Any) -> Iterator[str]:
    """Yield the participants of a collective (format section 7.5)."""
    if x.source_target_pairs:
        pairs = ",".join(f"{{{p.source},{p.target}}}" for p in x.source_target_pairs)
        yield f"source_target_pairs={{{pairs}}}"
    devices = x.collective_device_list
    groups = devices.replica_groups or x.replica_groups
    if x.HasField("mesh_axes_replica_group_list"):
        text = _mesh_groups(x.mesh_axes_replica_group_list)
        if text is not None:
            yield f"replica_groups={text}"
        return
    has_own = x.HasField("iota_collective_device_list")
    if has_own or devices.HasField("iota_replica_group_list"):
        iota = x.iota_collective_device_list if has_own else devices.iota_replica_group_list
        sizes = f"[{iota.num_replica_groups},{iota.num_devices_per_group}]"
        yield f"replica_groups={sizes}{_iota(iota.iota_reshape_dims, iota.iota_transpose_perm)}"
    elif groups:
        inside = ",".join(braces(group.replica_ids) for group in groups)
        yield f"replica_groups={{{inside}}}"
    elif x.HasField("collective_device_list"):
        yield "replica_groups={}"


def _mesh_groups(groups: Any) -> str | None:
    """Return groups along mesh axes; None if it has devices out of order or parts of axes."""
    if groups.mesh.device_ids or any(a.HasField("sub_axis_info") for a in groups.axes):
        return None
    axes = _axes(groups.mesh, groups.axes, ",")
    return None if axes is None else f"{_mesh(groups.mesh)} {axes}"


def _mesh(mesh: Any) -> str:
    sizes = ",".join(f"{_axis(axis)}={axis.size}" for axis in mesh.axes)
    return f"mesh[{sizes}]"


def _axis(axis: Any) -> str:
    return f"'{escaped(axis.name)}'"


def _axes(mesh: Any, axes: Any, between: str, after: Sequence[str] = ()) -> str | None:
    """Return axes of a mesh, or parts of them with their sizes; None if it has no such axes."""
    parsed = []
    for a in axes:
        if not 0 <= a.mesh_axis_index < len(mesh.axes):
            return None
        part = a.sub_axis_info
        name = _axis(mesh.axes[a.mesh_axis_index])
        parsed.append(f"{name}:({part.pre_size}){part.size}" if part.size else name)
    return f"{{{between.join((*parsed, *after))}}}"


def _iota(dimensions: Sequence[int], permutation: Sequence[int]) -> str:
    """Return devices in the order of their numbers, laid out and perhaps transposed."""
    text = f"<=[{','.join(map(str, dimensions))}]"
    if list(permutation) != list(range(len(permutation))):
        text += f"T({','.join(map(str, permutation))})"
    return text


def _named(sharding: Any) -> str | None:
    """Return a sharding over mesh axes; None for the forms whose words no dump has shown."""
    mesh = sharding.mesh
    if mesh.device_ids or sharding.unreduced_axes or sharding.manual_axes:
        return None
    parts = [
        _axes(mesh, d.axes, ", ", () if d.is_closed else ("?",)) for d in sharding.dim_shardings
    ]
    replicated = _axes(mesh, sharding.replicated_axes, ", ")
    if None in parts or replicated is None:
        return None
    dimensions = f"[{', '.join(map(str, parts))}]" if parts else "replicated"
    more = f", replicated={replicated}" if sharding.replicated_axes else ""
    return f"{{{_mesh(mesh)}, {dimensions}{more}}}"


def _sharding(sharding: Any) -> str | None:
    """Return a sharding (format section 7.5); None if XLA's form of it is not known."""
    if sharding.HasField("named_sharding"):
        return _named(sharding.named_sharding)
    if sharding.type in _SHARDINGS:
        return _SHARDINGS[sharding.type]
    if sharding.type == 2:
        parts = [_sharding(part) for part in sharding.tuple_shardings]
        return None if None in parts else f"{{{', '.join(map(str, parts))}}}"
    devices = sharding.tile_assignment_devices
    if sharding.type == 1:
        return f"{{maximal device={devices[0]}}}" if devices else None
    if sharding.type != 3:
        return None
    sizes = ",".join(map(str, sharding.tile_assignment_dimensions))
    text = f"{{devices=[{sizes}]"
    if sharding.iota_reshape_dims:
        text += _iota(sharding.iota_reshape_dims, sharding.iota_transpose_perm)
    else:
        text += ",".join(map(str, devices))
    if sharding.replicate_on_last_tile_dim:
        text += " last_tile_dim_replicate"
    if sharding.last_tile_dims:
        kinds = ", ".join(_TILE_DIMS.get(kind, "unknown") for kind in sharding.last_tile_dims)
        text += f" last_tile_dims={{{kinds}}}"
    return text + "}"
