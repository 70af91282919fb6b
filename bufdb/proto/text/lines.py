"""Instructions and computations of a serialised module as lines of an HLO text (format section 7).

What XLA prints, as far as bufdb reads it: name, shape, opcode, operands, the computations called,
what contractions, collectives and shardings are, metadata. Of literals only single numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from bufdb.proto import reader
from bufdb.proto.graph import ASYNC, Module, checked_names, opcodes_of
from bufdb.proto.shapes import text_of
from bufdb.proto.text.attributes import attributes
from bufdb.proto.text.words import escaped, quoted, word

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
_LITERALS = {1: "preds", 4: "s32s", 5: "s64s", 8: "u32s", 9: "u64s", 11: "f32s", 12: "f64s"}
"""By PrimitiveType the field of a literal that holds the elements."""


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
            line += "".join([f", {text}" for text in attributes(m, m.instructions[inner])])
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
            return f", kind={word(x.fusion_kind)}, calls=%{title}"
        return "".join([f", {text}" for text in attributes(self.module, x)])


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
