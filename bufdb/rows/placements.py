"""Where values are: rows of allocations, values, positions and uses."""

from __future__ import annotations

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Columns, Numbers, Text, take
from bufdb.columnar.section import UNREAD
from bufdb.errors import quote
from bufdb.read import allocations, used_values
from bufdb.read.arrays import BUFFERS, VALUES
from bufdb.read.shape import Shape, shape_of
from bufdb.read.used_values import UsedValues
from bufdb.rows.context import SECRET, Context, allocation_rounds, used_value_rounds
from bufdb.rows.instructions import Instructions
from bufdb.rows.value_index import ValueIndex

# -- Allocations and the values placed in them: rows of both tables, and the index of the values ---

_KEPT = ("module", "allocation_index", "size_bytes", "color", "kind")


class Shapes:
    """Shapes by their text, and which of them are new."""

    def __init__(self, known: dict[bytes, Shape]) -> None:
        """Take every shape met so far; new ones are added to `known`."""
        self.known = known
        self.new: list[Shape] = []

    def logical_bytes(self, context: Context, values: Columns) -> Numbers:
        """Return the bytes of each value's shape without padding; unknown if not understood.

        Each different text is parsed once, in the order of their first values: the order of their
        hashes differs between processes.
        """
        text: Text = values["shape"]
        _, first, inverse = np.unique(text.hashes(SECRET), return_index=True, return_inverse=True)
        sizes, valid = np.zeros(len(first), np.int64), np.zeros(len(first), np.bool_)
        tiled, odd = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
        order = np.argsort(first)
        texts = text.take(first[order]).tolist()
        for row, shape_text in zip(order.tolist(), texts, strict=True):
            assert shape_text is not None
            shape = self.shape(shape_text)
            odd[row] = shape.dtype is None
            if shape.logical_bytes is not None:
                sizes[row], valid[row] = shape.logical_bytes, True
            tiled[row] = shape.layout is not None and ":T(" in shape.layout
        context.set_fact(values["module"][tiled[inverse]], "has_tiles")
        for row in np.flatnonzero(odd[inverse]).tolist():
            shape_text = text.take(np.array([row])).tolist()[0] or b""
            message = f"the shape {quote(shape_text.decode(errors='replace'))} is not understood"
            context.find(int(values["module"][row]), "notice", "unknown_shape", message)
        return Numbers(sizes[inverse], valid[inverse])

    def shape(self, text: bytes) -> Shape:
        """Return a shape by its text, parsed if it was not met before."""
        shape = self.known.get(text)
        if shape is None:
            shape = shape_of(text.decode(errors="replace"))
            self.known[text] = shape
            self.new.append(shape)
        return shape


def read_allocations(context: Context, values: ValueIndex, shapes: Shapes) -> Columns:
    """Emit rows of `allocations` and `values`, and put the values into the index.

    Returns:
        module, allocation_index, size_bytes, color and kind of the allocations, sorted by module.
    """
    parts: list[Columns] = []
    for section, allocated in allocation_rounds(context, context.account):
        context.set_fact(section.modules, "has_allocations")
        context.set_fact(section.module_of[section.states == UNREAD], "has_unread_allocations")
        rows = allocated.allocations
        context.set_fact(rows["module"][rows.pop("has_pointer")], "has_pointer")
        shaped = rows["parameter_shape"].valid | rows["output_shape"].valid
        context.set_fact(rows["module"][shaped], "has_shapes")
        parts.append({name: rows[name] for name in _KEPT})
        for observer in context.observers:
            observer.see_allocations(rows)
        kinds = rows.pop("kind")
        context.emit("allocations", {**rows, "kind": Labels(kinds, allocations.KINDS)})
        placed = allocated.values
        placed["logical_bytes"] = shapes.logical_bytes(context, placed)
        name_key = context.name_keys(placed)
        values.add(
            module=placed["module"],
            value_id=placed["value_id"],
            name_key=name_key,
            key=placed["shape_index"].hashes(name_key),
            extra=used_values.extra_of(placed),
            allocation_index=placed["allocation_index"],
            offset_bytes=placed["offset_bytes"],
            size_bytes=placed["size_bytes"],
            is_phi=placed["is_phi"],
            logical_bytes=placed["logical_bytes"].filled(-1),
        )
        for observer in context.observers:
            observer.see_values(placed)
        context.emit("values", placed)
        section.close()
    empty = np.empty(0, np.int64)
    table = {n: np.concatenate([empty, *(part[n] for part in parts)]) for n in _KEPT}
    # Rows without a text come after all texts.
    is_sorted = not context.source.arrays.having(BUFFERS)
    return table if is_sorted else take(table, np.argsort(table["module"], kind="stable"))


def add_unassigned(context: Context, values: ValueIndex) -> None:
    """Add values of modules without allocations, from the list of used values."""
    lacking = set(np.flatnonzero(~context.having("has_allocations")).tolist())
    if not lacking:
        return
    for _, used in used_value_rounds(context, used_values.NothingAssigned(), only=lacking):
        heads = used.heads
        name_key = context.name_keys(heads)
        zeros = np.zeros(len(name_key), np.int64)
        values.add(
            module=heads["module"],
            value_id=heads["value_id"],
            name_key=name_key,
            key=heads["shape_index"].hashes(name_key),
            extra=used_values.extra_of(heads),
            allocation_index=zeros - 1,
            offset_bytes=zeros,
            size_bytes=zeros,
            is_phi=heads["is_phi"],
            logical_bytes=zeros - 1,
        )


# -- Where values are used: rows of `positions` and `uses`, and the total that is printed there ----


def look_for_descriptions(context: Context) -> None:
    """Find whether instructions are described, which decides what live ranges have to add."""
    for pieces in context.source.used_values():
        for piece in pieces:
            facts = context.facts[piece.module]
            facts.has_used_values = True
            line = b" from instruction:"
            facts.has_descriptions |= b"\n" + line in piece.text or piece.text.startswith(line)
        if context.count == 1 and context.facts[0].has_descriptions:
            return
    arrays = context.source.arrays
    for module in arrays.having(VALUES):
        context.facts[module].has_used_values = True
        context.facts[module].has_descriptions |= arrays.is_describing(module)


def read_used_values(context: Context, values: ValueIndex, instructions: Instructions) -> None:
    """Read the lists of used values, and check them against the values with an allocation."""
    listed = np.zeros(len(values), np.bool_)
    needs_description = context.having("has_descriptions")
    needs_description[list(context.source.described_once)] = False
    incomplete: list[int] = []
    for section, used in used_value_rounds(context, values, context.account):
        heads, rows = used.heads, used.rows
        listed[rows[rows >= 0]] = True
        incomplete += used.incomplete
        for module in used.unassigned:
            message = "the list of used values has some without an allocation"
            context.find(module, "error", "unassigned_values", message)
        for module, total, human, _ in used.totals:
            context.facts[module].total_bytes = total
            context.facts[module].human_total = human
        _emit_lists(context, used)
        instructions.add_described(section, used.descriptions, rows)
        for observer in context.observers:
            observer.see_uses(used)
        described = np.zeros(len(rows), np.bool_)
        described[used.descriptions["head"]] = True
        expected = needs_description[heads["module"]]
        incomplete += heads["module"][~described & expected].tolist()
    context.find_in_each(
        np.array(incomplete, np.int64),
        "error",
        "incomplete_value",
        "{count} used values lack their positions, uses or instruction",
    )
    has_list = context.having("has_used_values")[values.module]
    context.find_in_each(
        values.module[has_list & ~listed],
        "error",
        "used_values_mismatch",
        "{count} assigned values are not in the list of used values",
    )


def _emit_lists(context: Context, used: UsedValues) -> None:
    for table, columns in (("positions", used.positions), ("uses", used.uses)):
        ordinal = columns["ordinal"]
        columns["value_id"] = used.heads["value_id"][columns["head"]]
        columns[f"{table[:-1]}_ordinal"] = ordinal
        if table == "positions":
            columns["is_defining"] = ordinal == 0
        context.emit(table, columns)
