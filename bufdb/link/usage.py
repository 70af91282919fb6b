"""Where values are used: rows of `positions` and `uses`, and the total that is printed there."""

from __future__ import annotations

import numpy as np

from bufdb.link.context import Context
from bufdb.link.instructions import Instructions
from bufdb.link.rounds import used_value_rounds
from bufdb.link.value_index import ValueIndex
from bufdb.read.told import VALUES
from bufdb.read.used_values import UsedValues


def look_for_descriptions(context: Context) -> None:
    """Whether instructions are described decides what the live ranges have to add."""
    for pieces in context.source.used_values():
        for piece in pieces:
            facts = context.facts[piece.module]
            facts.has_used_values = True
            line = b" from instruction:"
            facts.has_descriptions |= b"\n" + line in piece.text or piece.text.startswith(line)
        if context.count == 1 and context.facts[0].has_descriptions:
            return
    told = context.source.told
    for module in told.having(VALUES):
        context.facts[module].has_used_values = True
        context.facts[module].has_descriptions |= told.is_describing(module)


def read_used_values(context: Context, values: ValueIndex, instructions: Instructions) -> None:
    """Read the lists of used values, and hold them to the values that have an allocation."""
    listed = np.zeros(len(values), np.bool_)
    needs_description = context.having("has_descriptions")
    needs_description[list(context.source.described_once)] = False
    incomplete: list[int] = []
    for section, found in used_value_rounds(context, values, context.account):
        heads, rows = found.heads, found.rows
        listed[rows[rows >= 0]] = True
        incomplete += found.incomplete
        for module in found.unassigned:
            message = "the list of used values has some that are in no allocation"
            context.find(module, "error", "unassigned_values", message)
        for module, total, human, _ in found.totals:
            context.facts[module].total_bytes = total
            context.facts[module].human_total = human
        _emit_lists(context, found)
        instructions.add_described(section, found.descriptions, rows)
        for observer in context.observers:
            observer.see_uses(found)
        described = np.zeros(len(rows), np.bool_)
        described[found.descriptions["head"]] = True
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


def _emit_lists(context: Context, found: UsedValues) -> None:
    for table, columns in (("positions", found.positions), ("uses", found.uses)):
        ordinal = columns["ordinal"]
        columns["value_id"] = found.heads["value_id"][columns["head"]]
        columns[f"{table[:-1]}_ordinal"] = ordinal
        if table == "positions":
            columns["is_defining"] = ordinal == 0
        context.emit(table, columns)
