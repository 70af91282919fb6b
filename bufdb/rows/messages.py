"""Out-of-memory messages as rows: what they say about a program's peak, and nothing else.

A message lists the largest buffers and sums of kinds, rounded. Each buffer is a value without
allocation, offset or live range, and holds its bytes at the peak; what the sums say beyond the
listing is held by rows without a value. Invariant: rows of `peak_values` add up to the peak.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.read.message import Amount, Buffer, Message, size_of
from bufdb.rows.context import Context
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
NO_SHAPE = "unknown"
"""values.shape of a buffer that has none, such as spilled registers."""
_JIT = re.compile(r"p?jit\(([^()]+)\)")


def add_messages(context: Context, shapes: Shapes) -> None:
    """Emit the rows of the modules of a batch that are messages."""
    tables: dict[str, list[Row]] = {}
    for module, message in context.source.messages.items():
        _Program(context, shapes, module, message).add(tables)
    for table, rows in tables.items():
        if not rows:
            continue
        columns = _columns(rows)
        if table == "values":
            columns["is_phi"] = np.zeros(len(rows), np.bool_)
        context.emit(table, columns)


class _Program:
    """The rows of one message."""

    def __init__(self, context: Context, shapes: Shapes, module: int, message: Message) -> None:
        self.context, self.shapes, self.module, self.message = context, shapes, module, message
        self.facts = context.facts[module]
        self.rounded = 0
        """Buffers whose size is only known as printed."""
        self.amounts = {name: amount.size_bytes for name, amount in message.amounts.items()}

    def add(self, tables: dict[str, list[Row]]) -> None:
        """Add the rows to those of each table, and report what is uncertain."""
        message, facts = self.message, self.facts
        facts.is_message, facts.has_tiles = True, message.is_tpu
        facts.is_of_gpu = message.form == "block"
        color = message.color
        facts.peak_problem = self._why_unknown()
        if color is None:
            self._find("data_loss", "unknown_memory_space", facts.peak_problem or "")
            return
        buffers = [self._buffer(b, color) for b in message.buffers if b.size]
        _name(buffers)
        facts.jit_name = _function(message)
        tables.setdefault("values", []).extend(_chosen(buffers, _VALUES))
        described = {row["instruction_name"]: row for row in reversed(buffers)}
        rows = [
            {**described[name], "shape": described[name]["result"]} for name in sorted(described)
        ]
        tables.setdefault("instructions", []).extend(_chosen(rows, _INSTRUCTIONS))
        tables.setdefault("memory_sums", []).append(self._sums(color))
        if facts.peak_problem is None:
            temp = self._temp() or 0
            occupied = {"module": self.module, "color": color, "occupied_temp_bytes": temp}
            tables.setdefault("occupied_peaks", []).append(occupied)
            tables.setdefault("peak_values", []).extend(self._held(buffers, color))
            text = "savings need live ranges, which an out-of-memory message does not have"
            self._find("notice", "savings_unknown", text)
        self._say_what_is_uncertain()

    def _find(self, severity: str, code: str, text: str) -> None:
        self.context.find(self.module, severity, code, text)

    def _why_unknown(self) -> str | None:
        message = self.message
        if message.color is None:
            return f"the message is about an unknown memory space {message.space}"
        if message.total is None:
            return "the out-of-memory message has no total"
        temp = self._temp()
        if self._fixed() < 0 or (temp is not None and temp < 0):
            return "the out-of-memory message says that a part is more than the whole"
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
        assert self.message.total is not None, "asked of a message with a total"
        return self.message.total.size_bytes - (self._all_temp() or 0)

    def _sums(self, color: int) -> Row:
        row: Row = {"module": self.module, "color": color, **dict.fromkeys(SUMS)}
        for name in ("argument", "output", "alias", "constant"):
            row[f"{name}_bytes"] = self.amounts.get(name)
        row["temp_bytes"] = self._all_temp()
        if self.message.total is not None:
            row["total_bytes"] = self.message.total.size_bytes
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
        if not message.is_tpu:
            of_kind["constant"] = amounts.get("constant", 0)
        elif not message.is_program_alone and {"output", "alias"} <= set(amounts):
            of_kind["output"] = max(0, amounts["output"] - amounts["alias"])
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
        assert message.total is not None, "asked of a message with a total"
        if listed > left + message.total.slack_bytes:
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

    def _say_what_is_uncertain(self) -> None:
        message = self.message
        if message.is_cut:
            text = "the out-of-memory message was cut off; what follows in it is missing"
            self._find("data_loss", "truncated_message", text)
        if without := sum(buffer.size is None for buffer in message.buffers):
            text = f"the message lists {without} buffers without their size, which are skipped"
            self._find("notice", "buffers_without_size", text)
        is_open = message.form == "list" and message.is_tpu and message.space == "hbm"
        is_least = message.is_program_alone or (is_open and "output" not in message.amounts)
        if is_least and self.facts.peak_problem is None:
            self._find("notice", "peak_at_least", _why_at_least(message))
        if figures := _figures(message):
            self._find("info", "memory_limit", figures)
        self._find("notice", "out_of_memory", _hint(message))
        if self.rounded or message.form not in _EXACT:
            text = "sums are rounded as the message prints them"
            if self.rounded:
                text += f", and so are {self.rounded} of {len(message.buffers)} buffers"
            self._find("notice", "rounded_sizes", text)


def _size(amount: Amount) -> str:
    """Format a size as the message does: 33.05G is 33.05 GiB."""
    size, unit = float(amount.size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.2f} {unit}" if unit != "B" else f"{amount.size_bytes} B"


def _why_at_least(message: Message) -> str:
    why = "the message does not say what arguments and outputs take"
    if message.form in ("array", "early", "tile"):
        why = "the message has the failed request, not the program's total"
    return f"{why}; the peak is at least this"


def _figures(message: Message) -> str:
    """Return what is needed, available and missing; '' if the message does not say."""
    needed, limit = message.needed or message.total, message.limit
    if needed is None:
        return ""
    if not message.is_tpu and message.form != "block":
        return f"an allocation of {_size(needed)} failed" if message.needed else ""
    if limit is None:
        return f"{_size(needed)} needed{_by_whom(message)}"
    over = message.excess or Amount(max(0, needed.size_bytes - limit.size_bytes), 0)
    text = f"{_size(needed)} needed{_by_whom(message)}, {_size(limit)} "
    if message.form in ("program", "array"):
        text += f"free: {_size(over)} too much (other arrays and programs hold the rest)"
    else:
        text += f"of {_SPACES.get(message.space, message.space)} available: {_size(over)} too much"
    if message.form == "cores":
        tensor, sparse = (_size(message.amounts[core]) for core in ("tensor", "sparse"))
        text += f" ({tensor} of the TensorCore, {sparse} of the SparseCores)"
    if "held" in message.amounts:
        text += f"; other arrays hold {_size(message.amounts['held'])}"
    return text


_OF_ONE = ("kernel", "operand", "tile", "block")
"""Forms about the scratch memory of one instruction or kernel."""
_EXACT = ("operand", "tile", "block")
"""Forms that say bytes or words."""
_SPACES = {"shared": "shared memory", "tensor": "tensor memory", "tile_spmem": "tile spmem"}
"""Names of memory spaces for sentences, where they differ from those of the column."""


def _by_whom(message: Message) -> str:
    """Return the instruction whose scratch memory it is."""
    if message.form not in _OF_ONE or not message.buffers or message.buffers[0].name is None:
        return ""
    buffer = message.buffers[0]
    parts = [buffer.opcode, None if buffer.result is None else buffer.result.partition("{")[0]]
    own = {name: buffer.metadata.get(name) for name in ("op_name", "source_file")}
    parts += [text.decode(errors="replace") for text in own.values() if isinstance(text, bytes)]
    if own["source_file"] and buffer.metadata.get("source_line"):
        parts[-1] = f"{parts[-1]}:{buffer.metadata['source_line']}"
    known = ", ".join(filter(None, parts))
    return f" by %{buffer.name}" + (f" ({known})" if known else "")


def _hint(message: Message) -> str:
    """Return what to do next, by what the message is about."""
    if message.is_tpu and message.parts <= {"usage", "program", "largest"}:
        return _SUMS_ALONE
    if message.form == "list" and message.buffers:
        return _LISTED if message.space == "hbm" else _LISTED_SCRATCH
    return _HINTS.get(message.form, _NOT_LISTED)


_DUMP = "XLA_FLAGS=--xla_dump_to=DIR"
_LISTED = "queries peak, peak-by-source-line and padding show what the message lists"
_LISTED_SCRATCH = (
    f"{_LISTED}; this memory is scratch space of single instructions: smaller blocks in a kernel, "
    "or other shapes, need less of it"
)
_SUMS_ALONE = (
    "the log has a program's sums but not whether it ran out of memory, as in logs of "
    "compilations that succeed"
)
_NOT_LISTED = (
    "the message has no list of buffers; XLA dumps a module before it gives up: run with "
    f"{_DUMP} and ingest DIR"
)
_HINTS = {
    "tile": (
        "a SparseCore's memory is too small for its program's data: use smaller blocks or windows "
        "in a kernel, or narrower embeddings"
    ),
    "block": (
        "a block of one GPU kernel needs more memory than its processor has: in your kernel use "
        "smaller blocks or fewer stages (block sizes, num_stages); for XLA's own Triton fusions "
        "--xla_gpu_enable_triton_gemm=false chooses others"
    ),
    "kernel": (
        "one instruction's scratch memory is too large: in a kernel use smaller or fewer blocks, "
        "or raise the limit (vmem_limit_bytes of its compiler parameters, or "
        "--xla_tpu_scoped_vmem_limit_kib)"
    ),
    "operand": (
        "one array of a kernel's scratch memory is larger than the memory: make the array, or its "
        "block, smaller"
    ),
    "temporaries": (
        "temporaries alone exceed the device's memory; XLA dumped this module before it gave up: "
        f"run with {_DUMP} and ingest DIR"
    ),
    "cores": (
        "TensorCore and SparseCores share this memory; if the SparseCores need more, use smaller "
        f"embedding tables or process fewer at a time. {_DUMP} dumps the module"
    ),
    "program": (
        "the program compiles, but other arrays and programs hold the device's memory when it is "
        f"loaded: free or donate arrays. {_DUMP} shows its need"
    ),
    "array": (
        "there was no room for an array or a program. A dump does not show what else the process "
        f"holds; {_DUMP} shows the need of the programs"
    ),
}
"""What to do next, by Message.form."""


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
        if found := _JIT.match(name.decode(errors="replace")):
            return found[1]
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
