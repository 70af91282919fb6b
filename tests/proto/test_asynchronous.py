"""Asynchronous calls whose update takes what the start does not, as collectives on SparseCore."""

from typing import Any

import numpy as np
import pytest
from proto_rows import needs_protobuf

from bufdb.proto.graph import Module
from bufdb.proto.places import Values, find_shown
from bufdb.proto.times import flatten

pytestmark = needs_protobuf
F32, TUPLE = 11, 13


def shape(*parts: Any) -> Any:
    """A scalar, or a tuple of shapes."""
    from bufdb.proto.hlo_fields_pb2 import ShapeProto

    kind = TUPLE if parts else F32
    return ShapeProto(element_type=kind, tuple_shapes=[p for p in parts if p is not None])


def computation(proto: Any, number: int, *lines: tuple[str, str, Any, list[int], Any]) -> None:
    """Add a computation of (name, opcode, shape, operands, other fields), the root last."""
    from bufdb.proto import hlo_fields_pb2 as made

    body = made.HloComputationProto()
    for place, (name, opcode, whole, operands, fields) in enumerate(lines):
        body.instructions.add(
            id=number * 10 + place,
            name=name.encode(),
            opcode=opcode.encode(),
            shape=whole.SerializeToString(),
            operand_ids=operands,
            **fields,
        )
    root = number * 10 + len(lines) - 1
    head = made.HloComputationParts(id=number, name=b"c%d" % number, root_id=root)
    proto.hlo_module.computations.append(head.SerializeToString() + body.SerializeToString())
    order = proto.hlo_module.schedule.sequences.add(computation=number)
    order.instructions.instruction_ids.extend(range(number * 10, root + 1))


def module(operand_count: int) -> Module:
    """Make a call with two operands: the start takes `given` of them, the update the others."""
    from bufdb.proto.hlo_fields_pb2 import HloProto

    proto = HloProto()
    proto.hlo_module.entry_computation_id = 2
    one, empty = shape(), shape(None)
    inside = [("p", "parameter", one, [], {}), ("q", "parameter", one, [], {"parameter_number": 1})]
    computation(proto, 1, *inside, ("cc", "custom-call", one, [10, 11], {}))
    started = shape(
        shape(*[one] * operand_count) if operand_count else empty,
        one if operand_count == 2 else empty,
        one,
    )
    updated = shape(shape(one, one), one, one)
    taken = [20, 21]
    computation(
        proto,
        2,
        ("a", "parameter", one, [], {}),
        ("b", "parameter", one, [], {"parameter_number": 1}),
        ("s", "async-start", started, taken[:operand_count], {"called_computation_ids": [1]}),
        ("w", "negate", one, [20], {}),
        ("u", "async-update", updated, [22, *taken[operand_count:]], {}),
        ("d", "async-done", one, [24], {}),
    )
    return Module(proto)


def shown(m: Module) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Return the other places where each array occurs, by the name of its defining instruction."""
    values = Values(places=[(m.named[name], ()) for name in ("a", "b", "cc", "w")])
    values.defined = {place: v for v, place in enumerate(values.places)}
    values.instruction = np.array([i for i, _ in values.places])
    shown_places = find_shown(m, values)
    return {
        m.names[values.places[v][0]]: sorted((m.names[i], index) for i, index in places)
        for v, places in shown_places.items()
    }


@pytest.mark.parametrize("operand_count", [0, 1])
def test_an_update_with_operands_shows_them_and_the_result(operand_count: int) -> None:
    shown_places = shown(module(operand_count))
    at_start = [("s", (0, 0))] if operand_count else []
    assert shown_places == {
        "a": [("p", ()), *at_start, ("u", (0, 0))],
        "b": [("q", ()), ("u", (0, 1))],
        "cc": [("d", ()), ("u", (1,))],
    }


def test_an_update_without_operands_shows_what_its_start_shows() -> None:
    assert shown(module(2)) == {
        "a": [("p", ()), ("s", (0, 0)), ("u", (0, 0))],
        "b": [("q", ()), ("s", (0, 1)), ("u", (0, 1))],
        "cc": [("d", ()), ("s", (1,)), ("u", (1,))],
    }


@pytest.mark.parametrize(
    ("operand_count", "order"), [(0, "abswpqccud"), (1, "abswpqccud"), (2, "abpqccswud")]
)
def test_a_called_computation_runs_before_its_start(operand_count: int, order: str) -> None:
    m = module(operand_count)
    assert "".join(m.names[i] for i in flatten(m).sequence) == order
