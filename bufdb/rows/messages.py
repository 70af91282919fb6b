"""Out-of-memory messages as rows: what they say about a program's peak, and nothing else.

A message lists the largest buffers and sums of kinds, rounded. Each buffer is a value without
allocation, offset or live range, and holds its bytes at the peak; what the sums say beyond the
listing is held by rows without a value. Invariant: rows of `peak_values` add up to the peak.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.read.amount import signed_amount_of
from bufdb.read.log_warnings import Warned
from bufdb.read.message import Buffer, Message, size_of
from bufdb.rows.context import Context
from bufdb.rows.message_text import figures_of, has_compiled, hint, is_exact, why_at_least
from bufdb.rows.peak_checks import SUMS
from bufdb.rows.placements import Shapes

Row = dict[str, Any]
_TEXTS = {
    "instruction_name", "shape_index", "shape", "opcode", "op_type", "op_name", "source_file",
    "text", "allocation_kind",
}  # fmt: skip
_VALUES = (
    "module", "value_id", "allocation_index", "offset_bytes", "size_bytes", "color",
    "instruction_name", "shape_index", "shape", "logical_bytes",
)  # fmt: skip
_INSTRUCTIONS = (
    "module", "instruction_name", "opcode", "shape", "op_type", "op_name", "source_file",
    "source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id",
    "text",
)  # fmt: skip
_OF_LIMITS = ("least_bytes", "first_bytes", "base_bytes")
NO_SHAPE = "unknown"
"""values.shape of a buffer that has none, such as spilled registers."""
_JIT = re.compile(r"p?jit\(([^()]+)\)")


def add_messages(context: Context, shapes: Shapes) -> None:
    """Emit the rows of the modules of a batch that are messages."""
    tables: dict[str, list[Row]] = {}
    for module, message in context.source.messages.items():
        first, *others = _spaces(message)
        _Program(context, shapes, module, first).add(tables)
        for one in others:
            _Space(context, shapes, module, one).add(tables)
    for table, rows in tables.items():
        if not rows:
            continue
        columns = _columns(rows)
        if table == "values":
            columns["is_phi"] = np.zeros(len(rows), np.bool_)
        context.emit(table, columns)


def _spaces(message: Message) -> list[Message]:
    """Return what a message says about each memory space that is not empty, the device's first."""
    more = [one for one in message.more if one.color is not None]
    more = [one for one in more if one.amounts or one.total is not None]
    more = [one for one in more if one.total is None or one.total.size_bytes]
    if message.total is None and message.form == "summary" and more:
        first = replace(more[0], function=message.function, more=more[1:])
        return [first, *more[1:]]
    return [message, *more]


class _Space:
    """The rows of one message about one memory space."""

    def __init__(self, context: Context, shapes: Shapes, module: int, message: Message) -> None:
        self.context, self.shapes, self.module, self.message = context, shapes, module, message
        self.facts = context.facts[module]
        self.rounded = 0
        """Buffers whose size is only known as printed."""
        self.amounts = {name: amount.size_bytes for name, amount in message.amounts.items()}
        self.total = message.total
        if self.total is not None and message.is_tpu and message.unshared is not None:
            # "Total hbm usage" adds up what is reserved, the program and arguments alone.
            self.total = self.total.within(message.parts_of_total()) + message.unshared

    def add(self, tables: dict[str, list[Row]]) -> None:
        """Add the rows to those of each table."""
        message, color = self.message, self.message.color
        problem = self.facts.peak_problem or self._why_unknown()
        assert color is not None, "asked of a known memory space"
        buffers = [self._buffer(b, color) for b in message.buffers if b.size]
        _name(buffers)
        tables.setdefault("values", []).extend(_chosen(buffers, _VALUES))
        described = {row["instruction_name"]: row for row in reversed(buffers)}
        rows = [
            {**described[name], "shape": described[name]["result"]} for name in sorted(described)
        ]
        tables.setdefault("instructions", []).extend(_chosen(rows, _INSTRUCTIONS))
        tables.setdefault("memory_sums", []).append(self._sums(color))
        if problem is None:
            temp = self._temp() or 0
            occupied = {"module": self.module, "color": color, "occupied_temp_bytes": temp}
            tables.setdefault("occupied_peaks", []).append(occupied)
            tables.setdefault("peak_values", []).extend(self._held(buffers, color))

    def _find(self, severity: str, code: str, text: str) -> None:
        self.context.find(self.module, severity, code, text)

    def _why_unknown(self) -> str | None:
        message = self.message
        if message.color is None:
            return f"the message is about an unknown memory space {message.space}"
        if message.form == "warning":
            return "XLA's warnings do not have the program's total"
        what = "log" if has_compiled(message) else "out-of-memory message"
        if self.total is None:
            return f"the {what} has no total"
        temp = self._temp()
        if self._fixed() < 0 or (temp is not None and temp < 0):
            return f"the {what} says that a part is more than the whole"
        return None

    def _all_temp(self) -> int | None:
        """Return bytes of temporaries and of scratch memory; None if the message does not say."""
        if not {"temp", "scoped"} & set(self.amounts):
            return None
        return self.amounts.get("temp", 0) + self.amounts.get("scoped", 0)

    def _temp(self) -> int | None:
        """Return the same at the peak, without what fragmentation adds."""
        temp = self._all_temp()
        return None if temp is None else temp - self.amounts.get("fragmentation", 0)

    def _fixed(self) -> int:
        """Return what is not temporary; everything if the message does not say what is."""
        assert self.total is not None, "asked of a message with a total"
        return self.total.size_bytes - (self._all_temp() or 0)

    def _sums(self, color: int) -> Row:
        row: Row = {"module": self.module, "color": color, **dict.fromkeys(SUMS)}
        for name in ("argument", "output", "alias", "constant"):
            row[f"{name}_bytes"] = self.amounts.get(name)
        row["temp_bytes"] = self._all_temp()
        if self.total is not None:
            row["total_bytes"] = self.total.size_bytes
            if self._fixed() >= 0:
                row["fixed_bytes"] = self._fixed()
        return row

    def _buffer(self, buffer: Buffer, color: int) -> Row:
        """Return a row with everything that is known about a buffer with a size."""
        assert buffer.size is not None, "asked of those with a size"
        shape, is_scratch = buffer.shape, buffer.is_scoped
        if self.message.form == "kernel":
            shape = buffer.result  # of the result, which lies elsewhere
        size, is_exact = buffer.size.size_bytes, not buffer.size.slack_bytes
        if buffer.shape is not None:
            size, is_exact = size_of(buffer.shape, buffer.size)
        self.rounded += not is_exact
        shape = NO_SHAPE if shape is None else shape
        return {
            "module": self.module,
            "value_id": buffer.number,
            "allocation_index": None,
            "offset_bytes": None,
            "size_bytes": size,
            "color": color,
            "instruction_name": buffer.name,
            "shape": shape,
            "logical_bytes": self.shapes.shape(shape.encode()).logical_bytes,
            "opcode": buffer.opcode,
            "text": buffer.label,
            "result": buffer.result,
            "is_scratch": is_scratch,
            "kind": buffer.kind or self._kind(size),
            **buffer.metadata,
        }

    def _kind(self, size: int) -> str | None:
        """Return the kind of a buffer that is no parameter: temp or output, if it fits only one."""
        message = self.message
        if message.is_tpu or not {"temp", "output"} <= set(message.amounts):
            return None
        temp, output = message.amounts["temp"], message.amounts["output"]
        if size > output.size_bytes + output.slack_bytes:
            return "temp"
        return "output" if size > temp.size_bytes + temp.slack_bytes else None

    def _held(self, buffers: list[Row], color: int) -> list[Row]:
        """Return the rows of `peak_values`: the buffers, and what each kind has beyond them."""
        message, amounts = self.message, self.amounts
        temp = self._temp()
        left = self._fixed() + (temp or 0)
        of_kind = {} if temp is None else {"temp": temp}
        if not message.is_program_alone or not message.is_tpu:
            of_kind["parameter"] = amounts.get("argument", 0)
        if not message.is_tpu and message.form != "statistics":
            of_kind["constant"] = amounts.get("constant", 0)
        if (message.is_tpu or message.form == "statistics") and message.unshared is not None:
            of_kind["output"] = message.unshared.size_bytes
        rows: list[Row] = []

        def hold(kind: str | None, value_id: int | None, size: int) -> None:
            nonlocal left
            held = min(size, left)
            left -= held
            if kind in of_kind:
                of_kind[kind] = max(0, of_kind[kind] - held)
            if held > 0:
                row = {"module": self.module, "color": color, "allocation_index": None}
                rows.append(
                    {**row, "allocation_kind": kind, "value_id": value_id, "held_bytes": held}
                )

        listed = sum(row["size_bytes"] for row in buffers)
        assert self.total is not None, "asked of a message with a total"
        if listed > left + self.total.slack_bytes:
            text = (
                f"the listed buffers have {listed} bytes, the peak {left}: some share their bytes"
            )
            self._find("notice", "shared_buffers", text)
        for row in buffers:
            hold(row["kind"], row["value_id"], row["size_bytes"])
        if any(row["kind"] is None for row in buffers):
            # Their kind is not known, so neither is what temporaries hold in addition to them.
            of_kind.pop("temp", None)
        for kind, size in of_kind.items():
            hold(kind, None, size)
        hold(None, None, left)
        return rows


def _limits(warned: Warned) -> Row | None:
    """Return what XLA planned for, as columns of scheduled_limits; None if it does not say."""
    amounts = {name: signed_amount_of(text) for name, text in warned.sizes}
    limit = amounts.get("limit_bytes")
    if limit is None:
        return None
    sizes = {name: amounts.get(name) for name in ("limit_bytes", *_OF_LIMITS)}
    return {
        **{name: None if one is None else one.size_bytes for name, one in sizes.items()},
        "slack_bytes": limit.slack_bytes,
    }


class _Program(_Space):
    """The rows of a message, with what is true of the whole program."""

    def add(self, tables: dict[str, list[Row]]) -> None:
        """Add the rows to those of each table, and report what is uncertain."""
        message, facts = self.message, self.facts
        facts.is_message, facts.has_tiles = True, message.is_tpu
        facts.has_compiled = has_compiled(message) or message.form == "warning"
        facts.is_of_gpu = message.form == "block" or message.space == "collective"
        facts.peak_problem = self._why_unknown()
        if message.color is None:
            self._find("data_loss", "unknown_memory_space", facts.peak_problem or "")
            return
        facts.jit_name = _function(message)
        for warned in message.warnings:
            self._find("notice", warned.code, warned.text)
        limits = [row for warned in message.warnings if (row := _limits(warned)) is not None]
        if limits:
            # Passes of XLA may warn several times: the last says what was left.
            tables.setdefault("scheduled_limits", []).append({"module": self.module, **limits[-1]})
        if message.form == "warning":
            return
        super().add(tables)
        if facts.peak_problem is None:
            text = "savings need live ranges, which a message in a log does not have"
            self._find("notice", "savings_unknown", text)
        self._say_what_is_uncertain()

    def _say_what_is_uncertain(self) -> None:
        message = self.message
        if message.is_cut:
            text = "the out-of-memory message was cut off; what follows in it is missing"
            self._find("data_loss", "truncated_message", text)
        if without := sum(buffer.size is None for buffer in message.buffers):
            text = f"the message lists {without} buffers without their size, which are skipped"
            self._find("notice", "buffers_without_size", text)
        is_list = message.form in ("list", "summary")
        is_open = is_list and message.is_tpu and message.space == "hbm"
        is_least = message.is_program_alone or message.form == "kernel"
        is_least = is_least or (is_open and "output" not in message.amounts)
        if is_least and self.facts.peak_problem is None:
            self._find("notice", "peak_at_least", why_at_least(message))
        if figures := figures_of(message, self.total):
            self._find("info", "memory_limit", figures)
        code = "compiled" if self.facts.has_compiled else "out_of_memory"
        self._find("notice", code, hint(message))
        if self.rounded or not is_exact(message):
            text = "sums are rounded as the message prints them"
            if self.rounded:
                text += f", and so are {self.rounded} of {len(message.buffers)} buffers"
            self._find("notice", "rounded_sizes", text)


def _name(buffers: list[Row]) -> None:
    """Set names, and places in tuples; where the message omits them, the buffer's number."""
    taken: set[tuple[str, str]] = set()
    for row in buffers:
        name = row["instruction_name"]
        if name and (row["result"] is None or row["is_scratch"]):
            # Scratch memory is not part of the result; otherwise the part is not known.
            row["shape_index"] = "{}"
            continue
        indices = _indices(row["shape"], row["result"] or "") if name else []
        free = next((index for index in indices if (name, index) not in taken), None)
        if free is None:
            name, free = f"Buffer {row['value_id']}", "{}"
            row["result"] = None if row["shape"] == NO_SHAPE else row["shape"]
            row["text"] = None
        row["instruction_name"], row["shape_index"] = name, free
        taken.add((name, free))


def _indices(shape: str, result: str) -> list[str]:
    """Return where an instruction's result has a shape: {} if it is no tuple."""
    if not result.startswith("("):
        return ["{}"] if shape == result else []
    parts = re.sub(r"/\*index=\d+\*/", "", result[1:-1]).split(", ")
    return [f"{{{place}}}" for place, part in enumerate(parts) if part == shape]


def _function(message: Message) -> str | None:
    """Return the program that the message names, or the function of the first jit(…)."""
    if message.function is not None:
        return re.sub(r"^p?jit_", "", message.function)
    for buffer in message.buffers:
        name: bytes = buffer.metadata.get("op_name", b"")
        if match := _JIT.match(name.decode(errors="replace")):
            return match[1]
    return None


def _chosen(rows: list[Row], names: tuple[str, ...]) -> list[Row]:
    return [{name: row.get(name) for name in names} for row in rows]


def _columns(rows: list[Row]) -> Columns:
    columns: Columns = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        if name == "module":
            columns[name] = np.array(cells, np.int64)
        else:
            columns[name] = strings(cells) if name in _TEXTS else objects(cells)
    return columns
