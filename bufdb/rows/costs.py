"""How many operations it takes to compute a value again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import gcd, prod

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Text, Words, take
from bufdb.read.hlo_graph import HloGraph, Instruction
from bufdb.read.shape import Shape, shape_of
from bufdb.rows.context import Context, Observer
from bufdb.rows.loop_origins import Found
from bufdb.rows.loop_walk import Origin
from bufdb.rows.value_index import ValueIndex, lookup

# -- Number of operations that make an instruction's data, from the shapes in the HLO text ---------
#
# Counted as XLA's HloCostAnalysis counts: two for each multiplication and addition of a product or
# a convolution (positions in the padding left out), one for each element of any elementwise
# operation, none for moves of data. For a fusion, and for an instruction in one, everything between
# its parameters and the result counts once: that is what is computed again from what the kernel
# reads. If anything in between has operations that are not known from shapes (library calls, loops,
# collectives), there is no figure.

_NOTHING = frozenset(
    (
        *("add-dependency", "after-all", "bitcast", "broadcast", "concatenate", "constant", "copy"),
        *("copy-done", "copy-start", "domain", "dynamic-reshape", "dynamic-slice", "iota"),
        *("dynamic-update-slice", "gather", "get-tuple-element", "opt-barrier", "pad", "parameter"),
        *("partition-id", "replica-id", "reshape", "reverse", "slice", "transpose", "tuple"),
    )
)
"""They move data, or name them."""
_ELEMENTWISE = frozenset(
    (
        *("abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan2", "atanh"),
        *("bitcast-convert", "cbrt", "ceil", "clamp", "clz", "compare", "complex", "convert"),
        *("cosine", "cosh", "count-leading-zeros", "divide", "erf", "exponential"),
        *("exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one"),
        *("logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power"),
        *("real", "reduce-precision", "remainder", "rng", "rng-bit-generator"),
        *("round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left"),
        *("shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sinh", "sqrt"),
        *("stochastic-convert", "subtract", "tan", "tanh", "xor"),
    )
)
MAX_INSTRUCTIONS = 2000
"""Limit on the instructions examined for a value, each time again; XLA's fusions have hundreds."""
MAX_DEPTH = 20
"""Limit on the nesting of computations; XLA's go three deep."""
_CONTRACTED = re.compile(rb"lhs_contracting_dims=\{([\d,]*)\}")
_CONFIGURED = re.compile(rb'lhs_contracting_dimensions\\?":\s*\[([^\]]*)\]')
_MATMUL = re.compile(rb'custom_call_target="__cublas\$(?:lt\$matmul[\w$]*|gemm)"')
_LABELS = re.compile(rb"dim_labels=([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)")
_WINDOW = re.compile(rb"window=\{([^}]*)\}")
_INTEGER = re.compile(rb"-?\d{1,9}")
_MAX_WINDOW = 1 << 16
"""Widest window that is examined; XLA makes one of a batch's size of some products."""


class Operations:
    """Counts in one module's text."""

    def __init__(self, graph: HloGraph) -> None:
        self.graph = graph
        self._fused: dict[bytes, int | None] = {}
        self._depth = 0

    def of(self, ins: Instruction) -> int | None:
        """Return the operations that make an instruction's data again; None if unknown.

        In a fused computation everything that leads to the instruction counts. An instruction that
        only moves data costs what its sources do.
        """
        if not self.graph.is_fused(ins.computation):
            count = self.alone(ins)
            return self._after_moves([ins]) if count == 0 else count
        inputs: list[int] = []
        count = self._closure(ins, inputs)
        if count != 0 or not inputs:
            return count
        fusion = self.graph.fusion(ins.computation)
        operands = [] if fusion is None else fusion.operands
        if fusion is None or max(inputs) >= len(operands):
            return None
        inputs_made_by = [
            self.graph.find(fusion.computation, operands[number][0]) for number in inputs
        ]
        makers = [maker for maker in inputs_made_by if maker is not None]
        return self._after_moves(makers) if len(makers) == len(inputs_made_by) else None

    def makers_of(self, ins: Instruction) -> list[bytes] | None:
        """Return the names of what is executed to make an instruction's data again.

        What only moves data is left out, as in `of`; None where a loop or a call is given them.
        """
        left, seen = [ins], {ins.position}
        if self.graph.is_fused(ins.computation):
            inputs: list[int] = []
            fusion = self.graph.executed(ins)
            if fusion is None:
                return None
            if self._closure(ins, inputs) != 0 or not inputs:
                return [fusion.name]
            if max(inputs) >= len(fusion.operands):
                return None
            names = [fusion.operands[number][0] for number in inputs]
            makers = [self.graph.find(fusion.computation, name) for name in names]
            left = [maker for maker in makers if maker is not None]
        made: list[bytes] = []
        while left:
            one = left.pop()
            if self.alone(one) != 0:
                made.append(one.name)
                continue
            is_given = one.opcode == "parameter" and not self.graph.is_entry(one.computation)
            if is_given or len(seen) > MAX_INSTRUCTIONS:
                return None
            for name, _ in one.operands:
                source = self.graph.find(one.computation, name)
                if source is not None and source.position not in seen:
                    seen.add(source.position)
                    left.append(source)
        return made

    def _after_moves(self, ends: Sequence[Instruction]) -> int | None:
        """Return the sum over the instructions that make the data which moves lead here.

        What a loop or a call is given is made elsewhere, at an unknown cost.
        """
        total, seen, left = 0, {end.position for end in ends}, list(ends)
        while left:
            ins = left.pop()
            count = self.alone(ins)
            is_given = ins.opcode == "parameter" and not self.graph.is_entry(ins.computation)
            if count is None or is_given or len(seen) > MAX_INSTRUCTIONS:
                return None
            total += count
            for name, _ in ins.operands if not count else ():
                instruction = self.graph.find(ins.computation, name)
                if instruction is not None and instruction.position not in seen:
                    seen.add(instruction.position)
                    left.append(instruction)
        return total

    def _closure(self, end: Instruction, inputs: list[int] | None = None) -> int | None:
        """Return the sum over everything that leads to an instruction in its computation, and it.

        `inputs` takes the numbers of the parameters that it begins with.
        """
        total, seen, left = 0, {end.position}, [end]
        while left:
            ins = left.pop()
            count = self.alone(ins)
            if count is None or len(seen) > MAX_INSTRUCTIONS:
                return None
            total += count
            if inputs is not None and ins.opcode == "parameter" and ins.number is not None:
                inputs.append(ins.number)
            for name, _ in ins.operands:
                instruction = self.graph.find(ins.computation, name)
                if instruction is not None and instruction.position not in seen:
                    seen.add(instruction.position)
                    left.append(instruction)
        return total

    def alone(self, ins: Instruction) -> int | None:
        """Return the operations of one instruction, including what it calls."""
        opcode = ins.opcode
        if opcode in _NOTHING:
            return 0
        if opcode in _ELEMENTWISE:
            return _elements(ins)
        if opcode in ("fusion", "call"):
            return self._called(ins, "calls" if opcode == "fusion" else "to_apply")
        if opcode in ("reduce", "map", "reduce-window"):
            return self._reduced(ins)
        if opcode in ("dot", "custom-call"):
            return self._product(ins)
        return self._convolution(ins) if opcode == "convolution" else None

    def _called(self, ins: Instruction, role: str) -> int | None:
        """Return the operations of the computation that an instruction calls."""
        names = ins.called.get(role)
        if not names or self._depth > MAX_DEPTH:
            return None
        if names[0] not in self._fused:
            self._fused[names[0]] = None  # a computation that calls itself has no figure
            self._depth += 1
            self._fused[names[0]] = self._whole(names[0])
            self._depth -= 1
        return self._fused[names[0]]

    def _whole(self, name: bytes) -> int | None:
        """Return the sum over a computation, in which XLA leaves only what leads to the root."""
        total, lines = 0, self.graph.instructions(name)
        for ins in lines:
            count = None if ins is None else self.alone(ins)
            if count is None:
                return None
            total += count
        return total if lines else None

    def _operand(self, ins: Instruction, number: int) -> tuple[int, ...] | None:
        """Return the dimensions of an operand."""
        shape = self.graph.operand_shape(ins, number)
        return None if shape is None else _dimensions(shape)

    def _reduced(self, ins: Instruction) -> int | None:
        """Count a computation once for each element of the operands, less the first ones."""
        each, inputs = self._called(ins, "to_apply"), self._operand(ins, 0)
        outputs = _elements(ins)
        if each is None or inputs is None or outputs is None:
            return None
        if ins.opcode == "map":
            return each * outputs
        if ins.opcode == "reduce":
            return each * max(0, prod(inputs) - outputs)
        sizes = _window(ins).get(b"size")
        return None if sizes is None else each * outputs * max(0, prod(sizes) - 1)

    def _product(self, ins: Instruction) -> int | None:
        """Count two for each element of the result times each element that is summed over."""
        if ins.opcode == "dot":
            match = _CONTRACTED.search(ins.attributes)
        else:
            is_known = _MATMUL.search(ins.attributes) is not None
            match = _CONFIGURED.search(ins.attributes) if is_known else None
        lhs, outputs = self._operand(ins, 0), _elements(ins)
        if lhs is None or outputs is None or match is None:
            return None
        numbers = [int(number) for number in _INTEGER.findall(match[1])]
        if any(number >= len(lhs) for number in numbers):
            return None
        return 2 * outputs * prod(lhs[number] for number in numbers)

    def _convolution(self, ins: Instruction) -> int | None:
        """Count two for each pair of a weight and a place of the input that meet."""
        labels = _LABELS.search(ins.attributes)
        lhs, kernel = self._operand(ins, 0), self._operand(ins, 1)
        out = _dimensions(shape_of(ins.shape))
        if labels is None or lhs is None or kernel is None or out is None:
            return None
        labeled = list(zip(labels.groups(), (lhs, kernel, out), strict=True))
        if any(len(names) != len(sizes) for names, sizes in labeled):
            return None
        sizes, weights, results = (
            dict(zip(names.decode(), numbers, strict=True)) for names, numbers in labeled
        )
        spatial = sorted(set(sizes) - {"b", "f", "?"})
        if not {"b", "f"} <= results.keys() or not {"i", "o"} <= weights.keys():
            return None
        if not all(name in weights and name in results for name in spatial):
            return None
        window = _window(ins)
        total: int = 2 * weights["i"] * results["f"] * results["b"]
        for place, name in enumerate(spatial):
            count = _positions(window, place, sizes[name], weights[name], results[name])
            if count is None:
                return None
            total *= count
        return total


def _dimensions(shape: Shape) -> tuple[int, ...] | None:
    """Return the dimensions of an array; None for anything else."""
    if shape.is_tuple or shape.dimensions is None or None in shape.dimensions:
        return None
    return tuple(size for size in shape.dimensions if size is not None)


def _elements(ins: Instruction) -> int | None:
    """Return the elements of the result; of several, as of a reduction, those of the first."""
    text = ins.shape
    if text.startswith("("):
        first = re.match(r"\(([a-z0-9]+\[[^\]]*\])", text)
        text = first[1] if first else text
    dimensions = _dimensions(shape_of(text))
    return None if dimensions is None else prod(dimensions)


def _window(ins: Instruction) -> dict[bytes, list[int]]:
    """Return the window's fields: numbers by dimension, of `pad` those below and above in turn."""
    match = _WINDOW.search(ins.attributes)
    fields = match[1].split() if match else []
    pairs = [field.partition(b"=") for field in fields]
    return {name: [int(x) for x in _INTEGER.findall(_split(text))] for name, _, text in pairs}


def _split(text: bytes) -> bytes:
    """Replace the separators of `3x3` and `1_1x0_-1` with blanks."""
    return text.replace(b"x", b" ").replace(b"_", b" ")


def _positions(
    window: dict[bytes, list[int]], place: int, input_size: int, size: int, output_size: int
) -> int | None:
    """Count, in one dimension, the pairs of a weight and a result place that meet an input."""

    def field(name: bytes, default: int, of: int = place) -> int:
        numbers = window.get(name)
        return default if numbers is None or of >= len(numbers) else numbers[of]

    stride, low = field(b"stride", 1), field(b"pad", 0, 2 * place)
    spread, gap = field(b"rhs_dilate", 1), field(b"lhs_dilate", 1)
    if min(stride, spread, gap) < 1 or size > _MAX_WINDOW:
        return None
    last = (input_size - 1) * gap
    common = gcd(stride, gap)
    period = gap // common
    inverse = pow(stride // common, -1, period)
    total = 0
    for k in range(size):
        # Places t with 0 <= t * stride + shift <= last that are multiples of gap.
        shift = k * spread - low
        if shift % common:
            continue
        first = max(0, -(shift // stride))
        first += (-(shift // common) * inverse - first) % period
        until = min(output_size - 1, (last - shift) // stride)
        total += max(0, (until - first) // period + 1)
    return total


# -- What large temp values cost to compute again: rows of `recompute_costs` -----------------------
#
# Which values are large is known when the peaks are; what defines them is looked up in the HLO text
# by name, and for what a loop stacks by the origin of its data.

_LIMIT = 2**63


class Costs(Observer):
    """The large values of a batch, with the names of what defines them."""

    def __init__(self, context: Context, values: ValueIndex, rows: Ints) -> None:
        """Start without any count.

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
        self._makers: list[Sequence[bytes | None]] = [()] * len(rows)
        self.has_values: Bools = np.zeros(context.count, np.bool_)
        """By module."""
        self.has_values[self._module] = True

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember the names of instructions that define large values."""
        # The last entry is for names that define no value.
        defining = np.flatnonzero(self._is_wanted[columns["name"]])
        names: Text = columns["instruction_name"].take(defining)
        for key, name in zip(name_keys[defining].tolist(), names.tolist(), strict=True):
            self._names[key] = name or b""

    def add_module(self, module: int, graph: HloGraph, origins: Found) -> None:
        """Count for the values of one module; the data of stacks are made at their origins."""
        begin, end = np.searchsorted(self._module, (module, module + 1))
        if begin == end:
            return
        operations = Operations(graph)
        keys = self._keys[begin:end].tolist()
        homes = graph.homes({self._names[key] for key in keys if key in self._names})
        numbers = lookup(origins.rows, origins.number, self._rows[begin:end]).tolist()
        known: dict[tuple[int, int], tuple[int | None, list[bytes] | None]] = {}
        for at, (key, number) in enumerate(zip(keys, numbers, strict=True), begin):
            origin = origins.origins[number] if number >= 0 else None
            is_stack = origin is not None and origin.kind == "stacked"
            case = (number, 0) if is_stack else (-1, key)
            if case not in known:
                name = self._names.get(key, b"")
                known[case] = (
                    _of_stack(operations, origin)
                    if origin is not None and is_stack
                    else _of(operations, homes.get(name), name)
                )
            count, makers = known[case]
            self._makers[at] = makers or (None,)
            if count is not None and count < _LIMIT:
                self._counts[at] = count

    def makers(self) -> Iterator[tuple[int, Sequence[bytes | None]]]:
        """Yield the rows of the index with what is executed to make their data again.

        It is None alone where that is unknown, and nothing for a module without HLO text.
        """
        yield from zip(self._rows.tolist(), self._makers, strict=True)

    def columns(self, is_known: Bools) -> Columns:
        """Return the rows of the table, of modules whose peak is still known."""
        result = {"module": self._module, "value_id": self._value_id}
        columns = {**result, "operation_count": self._counts}
        return take(columns, (self._counts >= 0) & is_known[self._module])


def _of(
    operations: Operations, home: int | None, name: bytes
) -> tuple[int | None, list[bytes] | None]:
    """Return the operations of what a name means in its home computation, and what makes it."""
    ins = None if home is None else operations.graph.find(home, name)
    return (None, None) if ins is None else (operations.of(ins), operations.makers_of(ins))


def _of_stack(operations: Operations, origin: Origin) -> tuple[int | None, list[bytes] | None]:
    """Return the operations of all slices of a stack, and what makes them."""
    if origin.instruction is None or origin.slice_count is None:
        return None, None
    count = operations.of(origin.instruction)
    total = None if count is None else count * origin.slice_count
    return total, operations.makers_of(origin.instruction)
