"""Instructions and computations of a serialised module as lines of an HLO text (format section 7).

What XLA prints, as far as bufdb reads it: name, shape, opcode, operands, the computations called,
what contractions, collectives and shardings are, metadata. Of literals only single numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from bufdb.proto import reader
from bufdb.proto.graph import ASYNC, Module, checked_names, opcodes_of
from bufdb.proto.shapes import Index, text_of

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
_ROLES = {"call": "to_apply", "fusion": "calls", "async-start": "calls", "while": "body"}
_PLAIN = frozenset(
    (
        *("abs", "add", "and", "bitcast", "bitcast-convert", "ceil", "clamp", "convert", "copy"),
        *("constant", "cosine", "divide", "exponential", "exponential-minus-one", "floor", "log"),
        *("log-plus-one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or"),
        *("power", "remainder", "reshape", "rsqrt", "select", "shift-left", "sine", "sqrt"),
        *("shift-right-arithmetic", "shift-right-logical", "sign", "subtract", "tanh", "tuple"),
        *("xor",),
    )
)
"""Opcodes without attributes of which bufdb reads any; most instructions are of these."""
_NO_ROLE = frozenset(("async-update", "async-done"))
_SHARDINGS = {0: "{replicated}", 4: "{manual}", 5: "{unknown}", 6: "{unreduced}"}
_TILE_DIMS = {0: "replicated", 4: "manual", 6: "unreduced"}
_LITERALS = {1: "preds", 4: "s32s", 5: "s64s", 8: "u32s", 9: "u64s", 11: "f32s", 12: "f64s"}
"""By PrimitiveType the field of a literal that holds the elements."""
_COLLECTIVE = (b"all-", b"collective-", b"ragged-", b"reduce-scatter")
"""How opcodes begin of which somebody takes part; all are looked at only of these."""


def braces(numbers: Iterable[int]) -> str:
    """A list of numbers as it is printed."""
    return f"{{{','.join(map(str, numbers))}}}"


@lru_cache(maxsize=1 << 14)
def index_text(index: Index) -> str:
    """A shape index as it is printed."""
    return braces(index)


def escaped(text: bytes) -> str:
    """Text for between quotes, as C escapes it."""
    return "".join([_ESCAPED[byte] for byte in text])


def _quoted(text: bytes) -> str:
    if text.isascii() and b'"' not in text and b"\\" not in text and b"'" not in text:
        plain = text.decode("ascii")
        if plain.isprintable():
            return f'"{plain}"'
    return f'"{escaped(text)}"'


class Printer:
    """Lines of one module's instructions, each made once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._metadata: dict[bytes, str] = {b"": ""}
        """What stands behind an instruction, by its metadata's bytes."""
        self._shapes: dict[bytes, str] = {}

    @cached_property
    def shapes(self) -> list[str]:
        """The whole shape of each instruction, with its layout."""
        return self._shapes_of(self.module.shapes)

    @cached_property
    def lines(self) -> list[str]:
        """Each instruction from its "%" on, as HLO texts print it."""
        m, names = self.module, self.module.names
        operands = [[names[o] for o in some] if some else () for some in m.operands]
        return self._lines(m.instructions, names, m.opcode, operands)

    def description(self, i: int) -> str:
        """An instruction as used values print it: asynchronous ones in their short form."""
        m = self.module
        opcode = m.opcode[i]
        wrapped = m.chain(i) if opcode in ASYNC else None
        inner = None if wrapped is None else self._single(wrapped)
        if inner is None:
            return self.lines[i]
        x, short = m.instructions[i], m.opcode[inner] + opcode.removeprefix("async")
        inside = self._inside(x, short, [m.names[o] for o in m.operands[i]])
        line = f"%{m.names[i]} = {self.shapes[i]} {short}({inside})"
        if opcode == "async-start":
            line += "".join([f", {text}" for text in _attributes(m, m.instructions[inner])])
        return f"{line}{self._metadata_of([x.metadata])[0]}{_config(x.backend_config)}"

    def _single(self, computation: int) -> int | None:
        """The one instruction that a computation holds besides its parameters; None if more."""
        found = [
            i
            for i in self.module.schedule.get(computation, ())
            if self.module.opcode[i] != "parameter"
        ]
        root = self.module.root.get(computation)
        return root if found == [root] else None

    def hlo(self, fused: Iterable[int]) -> Iterator[str]:
        """The computations of the module: these fused ones, then all others."""
        yield from self._fused(fused)
        m, lines = self.module, self.lines
        for c in m.order:
            yield f"{'ENTRY ' if c == m.entry else ''}%{m.titles[c]} () -> () {{"
            root, members = m.root.get(c), m.members[c]
            order: Sequence[int] = m.schedule.get(c, ())
            if len(order) != len(members) or set(order) != set(members):
                order = members
            yield from [f"  ROOT {lines[i]}" if i == root else f"  {lines[i]}" for i in order]
            yield "}"
            yield ""

    def _fused(self, fused: Iterable[int]) -> Iterator[str]:
        """Bodies of fusions; what is in all of them is printed together."""
        found: list[Any] = []
        names: list[str] = []
        operands: list[Sequence[str]] = []
        bodies = []
        for c in fused:
            data = self.module.computations[c]
            members = list(reader.instructions_of(data))
            start = len(found)
            found += members
            names += checked_names([x.name for x in members])
            known = dict(zip([x.id for x in members], names[start:], strict=True))
            operands += [[known.get(o, "unknown") for o in x.operand_ids] for x in members]
            bodies.append((c, reader.heads_of([data])[0][2], range(start, len(found))))
        lines = self._lines(found, names, opcodes_of(found), operands)
        for c, root, members_of in bodies:
            yield f"%{self.module.titles[c]} () -> () {{"
            for i in members_of:
                yield f"  {'ROOT ' if found[i].id == root else ''}{lines[i]}"
            yield "}"
            yield ""

    def _lines(
        self,
        found: Sequence[Any],
        names: Sequence[str],
        opcodes: Sequence[str],
        operands: Sequence[Sequence[str]],
    ) -> list[str]:
        """Instructions with their names, opcodes and names of their operands."""
        inside, more = self._inside, self._more
        return [
            f"%{name} = {shape} {opcode}({arguments}){attributes}{metadata}{config}"
            for name, shape, opcode, arguments, attributes, metadata, config in zip(
                names,
                self._shapes_of([x.shape for x in found]),
                opcodes,
                [
                    f"%{some[0]}" if len(some) == 1 else inside(x, opcode, some)
                    for x, opcode, some in zip(found, opcodes, operands, strict=True)
                ],
                [
                    "" if opcode in _PLAIN else more(x, opcode)
                    for x, opcode in zip(found, opcodes, strict=True)
                ],
                self._metadata_of([x.metadata for x in found]),
                [_config(text) if text else "" for text in [x.backend_config for x in found]],
                strict=True,
            )
        ]

    def _shapes_of(self, every: Sequence[bytes]) -> list[str]:
        """Shapes as XLA prints them, each different one once."""
        texts, shape_of = self._shapes, self.module.shape_of
        texts |= {data: text_of(shape_of(data)) for data in set(every) - texts.keys()}
        return [texts[data] for data in every]

    def _metadata_of(self, every: Sequence[bytes]) -> list[str]:
        """What stands behind instructions with these metadata, each different one once."""
        for data in set(every) - self._metadata.keys():
            found = _metadata(reader.metadata_of(data))
            self._metadata[data] = f", metadata={{{found}}}" if found else ""
        return [self._metadata[data] for data in every]

    def _inside(self, x: Any, opcode: str, operands: Sequence[str]) -> str:
        """What stands in the brackets of an instruction."""
        if operands:
            return "%" + ", %".join(operands) if len(operands) <= 5 else _numbered(operands)
        if opcode == "parameter":
            return str(x.parameter_number)
        return _literal(self.module, x) if opcode == "constant" else ""

    def _more(self, x: Any, opcode: str) -> str:
        """The attributes of an instruction, behind its brackets."""
        if opcode == "get-tuple-element":
            return f", index={x.tuple_index}"
        if opcode == "fusion" and len(called := x.called_computation_ids) == 1:
            title = self.module.titles.get(called[0], "unknown")
            return f", kind={_word(x.fusion_kind)}, calls=%{title}"
        return "".join([f", {text}" for text in _attributes(self.module, x)])


@lru_cache(maxsize=256)
def _word(text: bytes) -> str:
    """A word that XLA prints as it stands; what is none cannot end a line."""
    return text.decode("ascii") if text.isalnum() and text.isascii() else escaped(text)


def _numbered(names: Sequence[str]) -> str:
    every = (", %".join(names[at : at + 5]) for at in range(0, len(names), 5))
    found = (f"/*index={5 * n}*/%{some}" if n else f"%{some}" for n, some in enumerate(every))
    return ", ".join(found)


def _config(config: bytes) -> str:
    """The configuration of a backend: raw where XLA prints it raw and it is one plain line."""
    if not config:
        return ""
    if config[:1] == b"{" and config.isascii() and b"\n" not in config and b"\r" not in config:
        return f", backend_config={config.decode('ascii')}"
    return f', backend_config="{escaped(config)}"'


def _literal(m: Module, x: Any) -> str:
    """A number or a truth value alone; of all other constants only that they are there."""
    shape = m.shape_of(x.shape)
    field = _LITERALS.get(shape.element_type)
    if field is None or shape.dimensions or not x.HasField("literal"):
        return "{...}"
    found = getattr(x.literal, field)
    if len(found) != 1:
        return "{...}"
    number = found[0]
    if isinstance(number, float):
        return f"{number:.{9 if field == 'f32s' else 17}g}"
    return str(number).lower()


def _metadata(meta: Any) -> str:
    fields = []
    for name in ("op_type", "op_name", "source_file"):
        text = getattr(meta, name)
        if text:
            fields.append(f"{name}={_quoted(text)}")
    if meta.source_line or meta.source_end_line or meta.source_column:
        for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
            number = getattr(meta, name)
            if number:
                fields.append(f"{name}={number}")
    for name in ("deduplicated_name", "scheduling_name"):
        text = getattr(meta, name)
        if text:
            fields.append(f"{name}={_quoted(text)}")
    if meta.stack_frame_id:
        fields.append(f"stack_frame_id={meta.stack_frame_id}")
    return " ".join(fields)


def _attributes(m: Module, x: Any) -> Iterator[str]:
    opcode = x.opcode
    if opcode != b"parameter":
        yield from _own(m, x, opcode)
    if x.HasField("sharding"):
        text = _sharding(x.sharding)
        if text is not None:
            yield f"sharding={text}"


def _own(m: Module, x: Any, opcode: bytes) -> Iterator[str]:
    """What some opcodes have; a parameter has none of it."""
    if x.dimensions or opcode == b"broadcast":
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
        yield f"direction={_word(x.comparison_direction)}"
    if x.channel_id > 0:
        yield f"channel_id={x.channel_id}"
    if opcode.startswith(_COLLECTIVE):
        yield from _groups(x)
    if x.custom_call_target:
        yield f"custom_call_target={_quoted(x.custom_call_target)}"
    if opcode == b"fusion" and x.fusion_kind:
        yield f"kind={_word(x.fusion_kind)}"
    yield from _called(m, x, opcode.decode("ascii", "backslashreplace"))


def _called(m: Module, x: Any, opcode: str) -> Iterator[str]:
    """The computations that an instruction calls, by their roles."""
    called = x.called_computation_ids
    if not called or opcode in _NO_ROLE:
        return
    names = [f"%{m.titles.get(c, 'unknown')}" for c in called]
    if opcode == "while" and len(names) == 2:
        yield f"condition={names[1]}, body={names[0]}"
    elif opcode == "conditional":
        selector = x.operand_ids[0] if x.operand_ids else -1
        is_predicate = selector in m.at and m.shape(m.at[selector]).element_type == 1
        if len(names) == 2 and is_predicate:
            yield f"true_computation={names[0]}, false_computation={names[1]}"
        else:
            yield f"branch_computations={{{', '.join(names)}}}"
    elif opcode == "select-and-scatter" and len(names) == 2:
        yield f"select={names[0]}, scatter={names[1]}"
    elif opcode == "custom-call":
        yield f"called_computations={{{', '.join(names)}}}"
    else:
        yield f"{_ROLES.get(opcode, 'to_apply')}={names[0]}"


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
    """Which dimension is which, of a convolution's input, kernel and result."""

    def labels(first: str, at: int, second: str, behind: int, spatial: Sequence[int]) -> str:
        where = {at: first, behind: second, **{d: str(n) for n, d in enumerate(spatial)}}
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
    """Who takes part in a collective (format section 7.5)."""
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
    """Groups along axes of a mesh; None where it has devices out of order or parts of axes."""
    if groups.mesh.device_ids or any(a.HasField("sub_axis_info") for a in groups.axes):
        return None
    axes = _axes(groups.mesh, groups.axes, ",")
    return None if axes is None else f"{_mesh(groups.mesh)} {axes}"


def _mesh(mesh: Any) -> str:
    sizes = ",".join(f"{_axis(axis)}={axis.size}" for axis in mesh.axes)
    return f"mesh[{sizes}]"


def _axis(axis: Any) -> str:
    return f"'{escaped(axis.name)}'"


def _axes(mesh: Any, axes: Any, between: str, behind: Sequence[str] = ()) -> str | None:
    """Axes of a mesh, or parts of them with their sizes; None if it has no such axes."""
    found = []
    for a in axes:
        if not 0 <= a.mesh_axis_index < len(mesh.axes):
            return None
        part = a.sub_axis_info
        name = _axis(mesh.axes[a.mesh_axis_index])
        found.append(f"{name}:({part.pre_size}){part.size}" if part.size else name)
    return f"{{{between.join((*found, *behind))}}}"


def _iota(dimensions: Sequence[int], permutation: Sequence[int]) -> str:
    """Devices in the order of their numbers, laid out and perhaps transposed."""
    text = f"<=[{','.join(map(str, dimensions))}]"
    if list(permutation) != list(range(len(permutation))):
        text += f"T({','.join(map(str, permutation))})"
    return text


def _named(sharding: Any) -> str | None:
    """A sharding over the axes of a mesh; None for the forms whose words no dump has shown."""
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
    """A sharding (format section 7.5); None where it cannot be told as XLA prints it."""
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


def header(m: Module) -> Iterator[str]:
    """What stands above the computations: the line of the module, the tables of stack frames."""
    parts = [f"HloModule {escaped(m.proto.name)}", "is_scheduled=true"]
    aliases = [
        f"{_spaced(e.output_shape_index)}: ({e.parameter_number}, "
        f"{_spaced(e.parameter_shape_index)}, {'must-alias' if e.kind == 2 else 'may-alias'})"
        for e in m.proto.input_output_alias.entries
    ]
    if aliases:
        parts.append(f"input_output_alias={{ {', '.join(aliases)} }}")
    if m.proto.HasField("host_program_shape"):
        program = m.proto.host_program_shape
        inputs = ", ".join(
            f"/*index={n}*/{text_of(s)}" if n and n % 5 == 0 else text_of(s)
            for n, s in enumerate(program.parameters)
        )
        parts.append(f"entry_computation_layout={{({inputs})->{text_of(program.result)}}}")
    devices = m.proto.device_assignment
    if devices.replica_count > 1:
        parts.append(f"replica_count={devices.replica_count}")
    if devices.computation_count > 1:
        parts.append(f"num_partitions={devices.computation_count}")
    yield ", ".join(parts)
    yield ""
    yield from _frames(m.proto.stack_frame_index)
    yield ""


def _spaced(index: Index) -> str:
    return f"{{{', '.join(map(str, index))}}}"


def _frames(index: Any) -> Iterator[str]:
    """The tables of section 7.1, in which parents are printed one too high."""
    if not index.stack_frames:
        return
    for title, names in (("FileNames", index.file_names), ("FunctionNames", index.function_names)):
        yield title
        for number, name in enumerate(names, 1):
            yield f'{number} "{escaped(name)}"'
        yield ""
    yield "FileLocations"
    for number, place in enumerate(index.file_locations, 1):
        yield (
            f"{number} {{file_name_id={place.file_name_id} "
            f"function_name_id={place.function_name_id} line={place.line} "
            f"end_line={place.end_line} column={place.column} end_column={place.end_column}}}"
        )
    yield ""
    yield "StackFrames"
    for number, frame in enumerate(index.stack_frames, 1):
        parent = frame.parent_frame_id + 1
        yield f"{number} {{file_location_id={frame.file_location_id} parent_frame_id={parent}}}"
    yield ""
