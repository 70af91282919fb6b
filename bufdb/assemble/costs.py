"""What large temp values cost to compute again: rows of `recompute_costs`.

Which values are large is known when the peaks are; what defines them is looked up in the HLO text
by name, and for what a loop stacks by the origin of its data.
"""

from __future__ import annotations

import numpy as np

from bufdb.assemble.loops.origins import Found
from bufdb.assemble.loops.walk import Origin
from bufdb.assemble.operations import Operations
from bufdb.columnar.scan import Bools, Columns, Ints, Text, Words, take
from bufdb.link.context import Context, Observer
from bufdb.link.value_index import ValueIndex, lookup
from bufdb.read.hlo_graph import HloGraph

_LIMIT = 2**63


class Costs(Observer):
    """The large values of a batch, with the names of what defines them."""

    def __init__(self, context: Context, values: ValueIndex, rows: Ints) -> None:
        """Nothing is counted yet.

        Args:
            context: the batch.
            values: its values.
            rows: the large ones, ascending.
        """
        self._rows, self._keys = rows, values.name_keys(rows)
        self._module, self._value_id = values.module[rows], values.value_id[rows]
        self._is_wanted: Bools = np.zeros(len(values.names) + 1, np.bool_)
        self._is_wanted[values.name[rows]] = True
        self._names: dict[int, bytes] = {}
        self._counts = np.full(len(rows), -1)
        self.has_values: Bools = np.zeros(context.count, np.bool_)
        """By module."""
        self.has_values[self._module] = True

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember the names of instructions that define large values."""
        # The last entry is for names that define no value.
        mine = np.flatnonzero(self._is_wanted[columns["name"]])
        names: Text = columns["instruction_name"].take(mine)
        for key, name in zip(name_keys[mine].tolist(), names.tolist(), strict=True):
            self._names[key] = name or b""

    def add_module(self, module: int, graph: HloGraph, found: Found) -> None:
        """Count for the values of one module; the data of stacks are made at their origins."""
        begin, end = np.searchsorted(self._module, (module, module + 1))
        if begin == end:
            return
        operations = Operations(graph)
        keys = self._keys[begin:end].tolist()
        homes = graph.homes({self._names[key] for key in keys if key in self._names})
        numbers = lookup(found.rows, found.number, self._rows[begin:end]).tolist()
        known: dict[tuple[int, int], int | None] = {}
        for at, (key, number) in enumerate(zip(keys, numbers, strict=True), begin):
            origin = found.origins[number] if number >= 0 else None
            is_stack = origin is not None and origin.kind == "stacked"
            case = (number, 0) if is_stack else (-1, key)
            if case not in known:
                name = self._names.get(key, b"")
                known[case] = (
                    _of_stack(operations, origin)
                    if origin is not None and is_stack
                    else _of(operations, homes.get(name), name)
                )
            count = known[case]
            if count is not None and count < _LIMIT:
                self._counts[at] = count

    def columns(self, is_known: Bools) -> Columns:
        """Rows of the table, of modules whose peak is known still."""
        found = {"module": self._module, "value_id": self._value_id}
        columns = {**found, "operation_count": self._counts}
        return take(columns, (self._counts >= 0) & is_known[self._module])


def _of(operations: Operations, home: int | None, name: bytes) -> int | None:
    """Operations of what a name means in the computation where it is at home."""
    ins = None if home is None else operations.graph.find(home, name)
    return None if ins is None else operations.of(ins)


def _of_stack(operations: Operations, origin: Origin) -> int | None:
    """Operations of all slices of a stack."""
    if origin.instruction is None or origin.slice_count is None:
        return None
    count = operations.of(origin.instruction)
    return None if count is None else count * origin.slice_count
