"""The HLO text of a serialized module: lines of instructions, and the header."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from bufdb.proto import reader
from bufdb.proto.attributes import calls, escaped, own_attributes, quoted, word
from bufdb.proto.graph import ASYNC, Module
from bufdb.proto.messages import Instructions, parted, read_instructions
from bufdb.proto.shapes import Index, text_of

# --------------------------------------------------------------------------------------------------
# Instructions and computations of a serialized module as lines of an HLO text (format section 7).
#
# What XLA prints, as far as bufdb reads it: name, shape, opcode, operands, the computations called,
# what contractions, collectives and shardings are, metadata. Of literals only single numbers.

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
"""Opcodes without attributes that bufdb reads; most instructions have one of these."""
_LITERALS = {1: "preds", 4: "s32s", 5: "s64s", 8: "u32s", 9: "u64s", 11: "f32s", 12: "f64s"}
"""By PrimitiveType the field of a literal that holds the elements."""


class Printer:
    """Lines of one module's instructions, each made once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._metadata: dict[bytes, str] = {b"": ""}
        """The text after an instruction, by its metadata's bytes."""
        self._shapes: dict[bytes, str] = {}
        self._kinds: dict[bytes, str] = {}
        self._known: dict[tuple[str, bytes], tuple[str, str]] = {}

    @cached_property
    def shapes(self) -> list[str]:
        """The whole shape of each instruction, with its layout."""
        return self._shapes_of(self.module.shapes)

    @cached_property
    def lines(self) -> list[str]:
        """Each instruction from its "%" on, as HLO texts print it."""
        m, names = self.module, self.module.names
        operands = parted([names[o] for o in m.flat_operands], m.instructions.operand_counts)
        return self._lines(m.instructions, operands)

    def description(self, i: int) -> str:
        """Return an instruction as used values print it: asynchronous ones in their short form."""
        m = self.module
        opcode = m.opcode[i]
        wrapped = m.chain(i) if opcode in ASYNC else None
        inner = None if wrapped is None else self._single(wrapped)
        if inner is None:
            return self.lines[i]
        instructions, short = m.instructions, m.opcode[inner] + opcode.removeprefix("async")
        inside = self._inside(instructions, i, [m.names[o] for o in m.operands[i]])
        line = f"%{m.names[i]} = {self.shapes[i]} {short}({inside})"
        if opcode == "async-start":
            line += self._attributes(instructions, inner)
        config = _config(instructions.configs[i])
        return f"{line}{self._metadata_of([instructions.metadata[i]])[0]}{config}"

    def _single(self, computation: int) -> int | None:
        """Return the one instruction in a computation besides its parameters; None if more."""
        inner = [
            i
            for i in self.module.schedule.get(computation, ())
            if self.module.opcode[i] != "parameter"
        ]
        root = self.module.root.get(computation)
        return root if inner == [root] else None

    def hlo(self, fused: Iterable[int]) -> Iterator[str]:
        """Yield the computations of the module: these fused ones, then all others."""
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
        """Yield bodies of fusions, and of the fusions in them."""
        done: set[int] = set()
        while level := [c for c in dict.fromkeys(fused) if c not in done]:
            done.update(level)
            inside = yield from self._bodies(level)
            fused = [c for c in inside if c in self.module.computations]

    def _bodies(self, fused: Sequence[int]) -> Generator[str, None, list[int]]:
        """Yield bodies of fusions; the instructions of all are printed together.

        Returns:
            What the fusions in them call.
        """
        serialized: list[bytes] = []
        bodies = []
        every = [self.module.computations[c] for c in fused]
        for c, data in zip(fused, reader.computations_of(every), strict=True):
            start = len(serialized)
            serialized += data.instructions
            bodies.append((c, data.root_id, start, len(serialized)))
        instructions = read_instructions(serialized, self.module.payloads)
        operands = parted(instructions.operand_ids, instructions.operand_counts)
        named: list[Sequence[str]] = []
        for _, _, start, stop in bodies:
            ids = instructions.ids[start:stop]
            known = dict(zip(ids, instructions.names[start:stop], strict=True))
            named += [[known.get(o, "unknown") for o in some] for some in operands[start:stop]]
        lines = self._lines(instructions, named)
        for c, root, start, stop in bodies:
            yield f"%{self.module.titles[c]} () -> () {{"
            for i in range(start, stop):
                yield f"  {'ROOT ' if instructions.ids[i] == root else ''}{lines[i]}"
            yield "}"
            yield ""
        called = instructions.called.items()
        return [c for i, inside in called if instructions.opcodes[i] == "fusion" for c in inside]

    def _lines(self, instructions: Instructions, operands: Sequence[Sequence[str]]) -> list[str]:
        """Return instructions with the names of their operands."""
        inside = self._inside
        return [
            f"%{name} = {shape} {opcode}({arguments}){attributes}{metadata}{config}"
            for name, shape, opcode, arguments, attributes, metadata, config in zip(
                instructions.names,
                self._shapes_of(instructions.shapes),
                instructions.opcodes,
                [
                    f"%{some[0]}"
                    if len(some) == 1
                    else f"%{some[0]}, %{some[1]}"
                    if len(some) == 2
                    else inside(instructions, i, some)
                    for i, some in enumerate(operands)
                ],
                self._all_attributes(instructions),
                self._metadata_of(instructions.metadata),
                [_config(text) if text else "" for text in instructions.configs],
                strict=True,
            )
        ]

    def _shapes_of(self, every: Sequence[bytes]) -> list[str]:
        """Return shapes as XLA prints them, each different one once."""
        texts, shape_of = self._shapes, self.module.shape_of
        texts |= {data: text_of(shape_of(data)) for data in set(every) - texts.keys()}
        return [texts[data] for data in every]

    def _metadata_of(self, every: Sequence[bytes]) -> list[str]:
        """Return the text after instructions with these metadata, each different one made once."""
        for data in set(every) - self._metadata.keys():
            text = _metadata(reader.metadata_of(data))
            self._metadata[data] = f", metadata={{{text}}}" if text else ""
        return [self._metadata[data] for data in every]

    def _inside(self, instructions: Instructions, i: int, operands: Sequence[str]) -> str:
        """Return the text in the brackets of an instruction."""
        if operands:
            return "%" + ", %".join(operands) if len(operands) <= 5 else _numbered(operands)
        if instructions.opcodes[i] == "parameter":
            return str(instructions.parameter_numbers[i])
        if instructions.opcodes[i] == "constant":
            return _literal(self.module.shape_of(instructions.shapes[i]), instructions.literals[i])
        return ""

    def _all_attributes(self, instructions: Instructions) -> list[str]:
        """Return the text after the brackets of each instruction; equal ones are made once."""
        plain = {
            (opcode, data): "" if opcode in _PLAIN else "".join(self._own(opcode, data))
            for opcode, data in set(zip(instructions.opcodes, instructions.attributes, strict=True))
        }
        texts = [
            plain[key] for key in zip(instructions.opcodes, instructions.attributes, strict=True)
        ]
        titles = self.module.titles
        for i, called in instructions.called.items():
            opcode = instructions.opcodes[i]
            if opcode == "fusion" and len(called) == 1:
                kind = self._kind_of(instructions.attributes[i])
                texts[i] = f", kind={kind}, calls=%{titles.get(called[0], 'unknown')}"
            elif opcode not in _PLAIN:
                texts[i] = self._attributes(instructions, i)
        if "get-tuple-element" in instructions.opcodes:
            for i, opcode in enumerate(instructions.opcodes):
                if opcode == "get-tuple-element":
                    texts[i] = f", index={instructions.tuple_indexes[i]}"
        return texts

    def _attributes(self, instructions: Instructions, i: int) -> str:
        """Return the text after the brackets of an instruction, with the computations it calls."""
        own, sharding = self._own(instructions.opcodes[i], instructions.attributes[i])
        if instructions.opcodes[i] == "parameter" or i not in instructions.called:
            return own + sharding
        return own + calls(self.module, instructions, i) + sharding

    def _own(self, opcode: str, data: bytes) -> tuple[str, str]:
        """Return the text before the computations that an instruction calls, and that after."""
        text = self._known.get((opcode, data))
        if text is None:
            text = self._known[opcode, data] = own_attributes(reader.instruction_of(data), opcode)
        return text

    def _kind_of(self, attributes: bytes) -> str:
        """Return the kind of a fusion; there are four."""
        kind = self._kinds.get(attributes)
        if kind is None:
            kind = self._kinds[attributes] = word(reader.instruction_of(attributes).fusion_kind)
        return kind


def _numbered(names: Sequence[str]) -> str:
    every = (", %".join(names[at : at + 5]) for at in range(0, len(names), 5))
    elements = (f"/*index={5 * n}*/%{some}" if n else f"%{some}" for n, some in enumerate(every))
    return ", ".join(elements)


def _config(config: bytes) -> str:
    """Return a backend's configuration, raw where XLA prints it raw and it is one plain line."""
    if not config:
        return ""
    if config[:1] == b"{" and config.isascii() and b"\n" not in config and b"\r" not in config:
        return f", backend_config={config.decode('ascii')}"
    return f', backend_config="{escaped(config)}"'


def _literal(shape: Any, data: bytes) -> str:
    """Return a number or a truth value alone; of other constants only that they are there."""
    field = _LITERALS.get(shape.element_type)
    if field is None or shape.dimensions or not data:
        return "{...}"
    values = getattr(reader.literal_of(data), field)
    if len(values) != 1:
        return "{...}"
    number = values[0]
    if isinstance(number, float):
        return f"{number:.{9 if field == 'f32s' else 17}g}"
    return str(number).lower()


def _metadata(meta: Any) -> str:
    fields = []
    for name in ("op_type", "op_name", "source_file"):
        text = getattr(meta, name)
        if text:
            fields.append(f"{name}={quoted(text)}")
    if meta.source_line or meta.source_end_line or meta.source_column:
        for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
            number = getattr(meta, name)
            if number:
                fields.append(f"{name}={number}")
    for name in ("deduplicated_name", "scheduling_name"):
        text = getattr(meta, name)
        if text:
            fields.append(f"{name}={quoted(text)}")
    if meta.stack_frame_id:
        fields.append(f"stack_frame_id={meta.stack_frame_id}")
    return " ".join(fields)


# -- The text above the computations of an HLO text (format section 7.1) ---------------------------


def header(m: Module) -> Iterator[str]:
    """Yield the text above the computations: the module's line, the tables of stack frames."""
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
    """Yield the tables of section 7.1, in which parents are printed one too high."""
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
