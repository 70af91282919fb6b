"""What goes, what stays and what is kept instead where a line is left out of what a scan saves.

Two things that a user can do, told from the body of the forward loop:

- `wrap`: `jax.checkpoint` around what the line computes. What other lines read of it in the forward
  pass are its results, which stay. The rest is computed again, back to the nearest values of other
  lines or the carry, and these are kept if they are neither saved already nor free.
- `policy`: one name less in the checkpoint policy that the body has; what that saves passes a
  `reduce-precision`. All of the line goes, but for what another line holds in another layout.

Of 51 such changes of transformers on the CPU, compiled again, 49 came as the range said. In the two
others XLA had made one instruction of equal ones of two lines (`x - mean` written twice), of which
only one line is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bufdb.assemble.residuals.layer import LAYOUT, MAX_NODES, Layer

_PASSED = LAYOUT | {"slice", "broadcast"}
_NAMED_LAYOUT = (
    *("transpose", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "split"),
    *("slice", "rev", "optimization_barrier"),
)
"""How op_names of operations end that hold the data of their operand."""
_CHEAP = ("broadcast", "compare", "iota", "pad")
_CHEAP_TYPES = (b"pred", b"s32", b"u32")
"""Masks and indices are computed again, not kept."""


@dataclass(frozen=True)
class Stack:
    """What a loop stacks of a layer."""

    update: int
    """The node that is inserted, a slice."""
    label: str | None
    """The line that it is attributed to."""
    slice_count: int
    is_layer_input: bool


@dataclass
class LeftOut:
    """One stack that is not saved; numbers are those of nodes."""

    stack: Stack
    form: str
    """wrap or policy."""
    is_gone: bool
    kept: dict[int, int] = field(default_factory=dict)
    """Bytes of a slice of values of other lines that are kept to compute it again."""
    again: set[int] = field(default_factory=set)
    """What is computed again then."""
    all_again: set[int] = field(default_factory=set)
    """What is computed again where nothing but other stacks is kept."""


def leave_out(layer: Layer, stacks: Sequence[Stack]) -> list[LeftOut | None]:
    """Each stack by itself; None where too much leads to it. Sets of them are unions."""
    saved: dict[int, set[str | None]] = {}
    for stack in stacks:
        saved.setdefault(layer.bare(stack.update), set()).add(stack.label)
    nodes = layer.nodes
    form = "wrap"
    if any(nodes[number].opcode == "reduce-precision" for number in layer.reached):
        form = "policy"
    return [_leave_out(layer, stack, form, saved) for stack in stacks]


def _leave_out(
    layer: Layer, stack: Stack, form: str, saved: dict[int, set[str | None]]
) -> LeftOut | None:
    seed = layer.bare(stack.update)
    found = LeftOut(stack, form, is_gone=False)
    if not (stack.is_layer_input or layer.is_free(seed) or layer.is_carried(seed)):
        if form == "wrap":
            found.is_gone = not layer.is_read(seed, stack.label, _PASSED)
        else:
            found.is_gone = not _is_held(layer, seed, stack.label)
    others = {number for number, labels in saved.items() if labels != {stack.label}} - {seed}
    closure = _walk(layer, seed, stack.label, others, None)
    if closure is None:
        return None
    found.all_again = closure
    if found.is_gone:
        again = _walk(layer, seed, stack.label, others, found.kept)
        assert again is not None
        found.again = again
    return found


def _walk(
    layer: Layer, seed: int, label: str | None, others: set[int], kept: dict[int, int] | None
) -> set[int] | None:
    """What is computed to have a value again; `kept` takes the values of other lines before it."""
    again: set[int] = set()
    todo = [seed]
    while todo:
        read = todo.pop()
        number = layer.bare(read)
        if number in again:
            continue
        if number != seed:
            if number in others or layer.is_free(number):
                continue
            if layer.is_carried(number) or (kept is not None and _is_kept(layer, number, label)):
                if kept is not None:
                    kept[number] = max(kept.get(number, 0), layer.size_bytes(read, label))
                continue
        again.add(number)
        if len(again) > MAX_NODES:
            return None
        todo += layer.nodes[number].operands
    return again


def _is_kept(layer: Layer, number: int, label: str | None) -> bool:
    node, of = layer.nodes[number], layer.label(number)
    is_cheap = node.opcode in _CHEAP or node.shape_text.startswith(_CHEAP_TYPES)
    return of is not None and of != label and not is_cheap


def _is_held(layer: Layer, seed: int, label: str | None) -> bool:
    """Whether another line holds the same data, in another layout."""
    labels: set[str | None] = {None, label}
    number: int | None = seed
    for _ in range(MAX_NODES):
        if number is None:
            break
        labels.add(layer.label(number))
        node = layer.nodes[number]
        is_part = node.opcode in LAYOUT | {"slice"} and node.operands
        number = node.operands[0] if is_part else None
    seen, todo = {seed}, [seed]
    while todo and len(seen) < MAX_NODES:
        for user in layer.nodes[todo.pop()].users:
            node = layer.nodes[user]
            if user in seen or node.opcode not in LAYOUT | {"slice"}:
                continue
            seen.add(user)
            todo.append(user)
            names = [(ins.op_name or b"").split(b";")[0] for ins in node.makers]
            if any(name.rpartition(b"/")[2].decode() in _NAMED_LAYOUT for name in names):
                labels.add(layer.label(user))
    return bool(labels - {None, label})
