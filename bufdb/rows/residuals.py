"""What a scan saves for the backward pass, with its savings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Bools, Columns, Ints
from bufdb.memory.needs import Kept, Needs
from bufdb.read.hlo_graph import HloGraph, Instruction
from bufdb.read.jax_names import is_forward
from bufdb.rows.costs import Costs, Operations
from bufdb.rows.loop_origins import Found, names_of
from bufdb.rows.loop_places import Places
from bufdb.rows.loop_walk import Origin
from bufdb.rows.residual_layers import LINE_BYTES, Layer, LeftOut, Stack, TooLargeError, leave_out
from bufdb.rows.value_index import ValueIndex, lookup

# -- Needs of stacks as columns of `recompute_parts`: what the same stacks need is one part --------

_LIMIT = 2**63


def columns_of(stacks: Mapping[bytes, Needs]) -> Columns:
    """Return a row for each stack and each part that it needs.

    Args:
        stacks: by the name of what inserts their slices.
    """
    users: dict[int, list[tuple[str, bytes]]] = {}
    kept: dict[int, Kept] = {}
    counts: dict[int, int | None] = {}
    for name, needs in stacks.items():
        for kind in ("again", "all_again", "kept"):
            for node in getattr(needs, kind):
                users.setdefault(node, []).append((kind, name))
        kept |= needs.kept
        counts |= needs.all_again
    parts: dict[tuple[str | None, tuple[tuple[str, bytes], ...]], list[int]] = {}
    for node in sorted(users):
        line = kept[node].name if node in kept else None
        parts.setdefault((line, tuple(users[node])), []).append(node)
    rows = []
    # Sorted by what they are: the numbers of nodes depend on the form of the text.
    in_order = sorted(parts.items(), key=lambda part: (part[0][0] or "", part[0][1]))
    for index, ((line, of), nodes) in enumerate(in_order):
        known = [count for node in nodes if (count := counts.get(node)) is not None]
        total = sum(known) if len(known) == len(nodes) and sum(known) < _LIMIT else None
        for kind, name in of:
            kept_parts = stacks[name].kept if kind == "kept" else {}
            size = sum(kept_parts[node].size_bytes for node in nodes if node in kept_parts)
            cells = (None, size, line) if kind == "kept" else (total, None, None)
            rows.append((name, kind, index, stacks[name].form, *cells))
    if not rows:
        return {}
    names, kinds, indexes, of_forms, totals, sizes, lines = zip(*rows, strict=True)
    return {
        "written_by": strings(names),
        "part_kind": strings(kinds),
        "part_index": np.array(indexes, np.int64),
        "saving_form": strings(of_forms),
        "operation_count": objects(totals),
        "kept_bytes": objects(sizes),
        "kept_name": strings(lines),
    }


# -- Residuals of the scans of a batch, and what would be left of each stack -----------------------
#
# Only loops that stack something of a forward pass are looked at: the graph of such a body is made
# once, and each stack is left out of it by itself. What several stacks need is known by its number
# in the batch, so that sets of stacks are unions.

_SAVED = "saved "


@dataclass(frozen=True)
class Saved:
    """A stack of the batch, with what it takes to leave it out."""

    needs: Needs
    slice_count: int
    """It is 0 for an input of the layer."""
    makers: Mapping[bytes, bool]
    """What is executed to compute it again, and whether it is at the low end too."""


class Residuals:
    """The stacks of a batch."""

    def __init__(self) -> None:
        """Start without any stack."""
        self.stacks: list[Saved] = []
        self._rows: list[Ints] = [np.empty(0, np.int64)]
        self._numbers: list[Ints] = [np.empty(0, np.int64)]
        self._count = 0
        """Nodes so far."""

    def add_module(self, graph: HloGraph, places: Places | None, origins: Found) -> Columns:
        """Take the stacks of a module; return rows of `recompute_parts`, without the module."""
        residual = [n for n, origin in enumerate(origins.origins) if _is_residual(origin)]
        if not residual or places is None:
            return {}
        names = dict(
            zip(residual, names_of([origins.origins[n] for n in residual], places), strict=True)
        )
        labels = {n: (name[0] or name[1] or "").removeprefix(_SAVED) for n, name in names.items()}
        number_of = np.full(len(origins.origins) + 1, -1)
        loops: dict[bytes, list[int]] = {}
        for n in residual:
            loop = origins.origins[n].loop
            bodies = loop.called.get("body") if loop is not None else None
            if bodies:
                loops.setdefault(bodies[0], []).append(n)
        budget = len(graph.text) // LINE_BYTES
        for body, numbers in loops.items():
            try:
                layer = Layer(graph, places, body, budget)
            except TooLargeError:
                continue
            budget -= layer.spent
            self._add_layer(layer, origins, numbers, labels, number_of)
        number = number_of[origins.number]
        self._rows.append(origins.rows[number >= 0])
        self._numbers.append(number[number >= 0])
        stacks: dict[bytes, Needs] = {}
        for n in residual:
            writer = origins.origins[n].written_by
            if writer is not None and number_of[n] >= 0:
                stacks.setdefault(writer.name, self.stacks[number_of[n]].needs)
        return columns_of(stacks)

    def _add_layer(
        self,
        layer: Layer,
        origins: Found,
        numbers: Sequence[int],
        labels: dict[int, str],
        number_of: Ints,
    ) -> None:
        """Leave out each stack of one loop."""
        known = []
        for n in numbers:
            stack = _stack(layer, origins.origins[n], labels[n])
            if stack is not None:
                known.append((n, stack))
        operations = Operations(layer.graph)
        costs: dict[int, int | None] = {}
        for (n, _), left in zip(known, leave_out(layer, [s for _, s in known]), strict=True):
            if left is not None:
                number_of[n] = len(self.stacks)
                self.stacks.append(self._saved(layer, left, operations, costs))
        self._count += len(layer.nodes)

    def _saved(
        self,
        layer: Layer,
        left: LeftOut,
        operations: Operations,
        costs: dict[int, int | None],
    ) -> Saved:
        stack, first = left.stack, self._count
        for node in left.all_again - costs.keys():
            made = layer.nodes[node]
            is_element = made.opcode == "get-tuple-element"
            costs[node] = 0 if is_element else operations.alone(made.makers[0])

        def counted(nodes: Iterable[int]) -> dict[int, int | None]:
            costs_of_nodes = {node: costs[node] for node in nodes}
            return {
                first + node: None if count is None else count * stack.slice_count
                for node, count in costs_of_nodes.items()
            }

        kept = {
            first + node: Kept(layer.label(node) or "", size * stack.slice_count)
            for node, size in left.kept.items()
        }
        needs = Needs(left.form, left.is_gone, kept, counted(left.again), counted(left.all_again))
        makers: dict[bytes, bool] = {}
        for node in left.all_again:
            executed = (
                layer.graph.executed(layer.nodes[node].makers[0]) if costs[node] != 0 else None
            )
            if executed is not None:
                makers[executed.name] = makers.get(executed.name, False) or node in left.again
        return Saved(needs, 0 if stack.is_layer_input else stack.slice_count, makers)

    def makers(self) -> Iterator[tuple[int, Mapping[bytes, bool]]]:
        """Yield the rows of the index that are stacks, with what is executed to compute them."""
        for rows, numbers in zip(self._rows, self._numbers, strict=True):
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
                yield row, self.stacks[number].makers

    def numbers(self, rows: Ints) -> Ints:
        """Return which stack each row of the index is, or -1."""
        known, number = np.concatenate(self._rows), np.concatenate(self._numbers)
        order = np.argsort(known)
        return lookup(known[order], number[order], rows)

    @property
    def is_gone(self) -> Bools:
        """Whether each stack goes away; the last entry is for number -1."""
        return np.array([*(stack.needs.is_gone for stack in self.stacks), False], np.bool_)


def makers_of(values: ValueIndex, costs: Costs, residuals: Residuals) -> Columns:
    """Return the rows of `recompute_instructions`; none if there are none."""
    stacks = dict(residuals.makers())
    rows = [
        (row, name, is_low)
        for row, made in (*costs.makers(), *stacks.items())
        for name, is_low in (
            stacks[row].items() if row in stacks else dict.fromkeys(made, False).items()
        )
    ]
    if not rows:
        return {}
    rows = sorted(set(rows), key=lambda one: (one[0], one[1] or b""))
    row, names, is_low = zip(*rows, strict=True)
    at = np.array(row, np.int64)
    return {
        "module": values.module[at],
        "value_id": values.value_id[at],
        "instruction_name": strings(names),
        "is_low": np.array(is_low, np.bool_),
    }


def _is_residual(origin: Origin) -> bool:
    """Return whether an origin is one, as value_origin_details.is_residual."""
    op_name = origin.instruction.op_name if origin.instruction is not None else None
    if origin.kind != "stacked" or not origin.slice_count or op_name is None:
        return False
    return is_forward(op_name)


def _stack(layer: Layer, origin: Origin, label: str) -> Stack | None:
    """Return the stack in the graph of its loop."""
    written: Instruction | None = origin.written_by
    number = None if written is None else layer.number_of.get(written.position)
    node = None if number is None else layer.nodes[number]
    if node is None or node.opcode != "dynamic-update-slice" or len(node.operands) < 2:
        return None
    return Stack(
        node.operands[1],
        label or None,
        origin.slice_count or 0,
        origin.is_layer_input,
    )
