"""Losses whose text is changed: a gradient in microbatches, a wide reduced piece in chunks.

Both need the loss at a smaller batch, which is traced of the user's function, not derived: what
differs between the two traces by the ratio of the sizes has the batch as that axis.

    microbatch   a scan over parts of the batch takes the gradient of each; the mean is the gradient
    chunks       a scan over parts of the batch computes the piece of each, checkpointed

Both assume something of the loss: that it is a mean over the batch, or that the piece has no sums
across it. `compared` runs both losses on random numbers, at a batch of `CHECKED`, where they are
small enough for it, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    aval_bytes,
    inner_jaxprs,
    is_dropped,
    is_inexact,
    is_literal,
    live_peak,
    work,
)
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Closed, Gradient, gradient
from bufdb.fitting.jax_inside import JITS, Changed, bind, evaluate, value, without_dead_code
from bufdb.fitting.precise import is_concrete
from bufdb.fitting.reader import Reader

CHECKED = 4
"""Examples of the batch on which a change is checked; two parts of it are compared with it."""
CHECKED_WORK = 10**11
"""Operations of a gradient up to which it is run for the check: some seconds of a few cores."""
CHECKED_BYTES = 2 << 30
"""Bytes of its values up to which it is."""
ROUNDING = 1e-4
"""Share of the largest number of an array up to which a difference is rounding, in float32."""
DRAWS = ((-0.5, 0.5, (0, 1)), (0.1, 0.9, (0, 1)), (-0.5, 0.5, (-100, -1, 0, 1)))
"""Ranges of random floats, and whole numbers; what is finite as written is compared.

0 and 1 are valid as tokens, labels and masks, the negative ones are what losses leave out.
"""
WIDER = 2
"""How many times as large as its input a product must be to be wide."""


# -- A loss at two sizes of the batch --------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A loss, and the same for one of `count` equal parts of the batch."""

    full: Gradient
    part: Gradient
    count: int
    axes: tuple[int | None, ...]
    """Of each constant the axis that is the batch; None if it has none."""
    devices: int = 1
    """Over how many devices the batch is sharded: a part has an equal share of each."""


def paired(full: Gradient, part: Gradient, count: int, devices: int = 1) -> Pair:
    """Return a loss at two sizes.

    Raises:
        Refused: they are not the same loss, or what is differentiated has the batch as an axis.
    """
    one, other = full.closed.jaxpr, part.closed.jaxpr
    if full.outputs != part.outputs or len(one.constvars) != len(other.constvars):
        raise Refused("another size of the batch is another program")
    for var, small in zip(one.invars, other.invars, strict=True):
        if _axis(var.aval, small.aval, count) is not None:
            raise Refused("what is differentiated has the batch as an axis")
    both = zip(one.constvars, other.constvars, strict=True)
    axes = tuple(_axis(var.aval, small.aval, count) for var, small in both)
    return Pair(full, part, count, axes, devices)


def _axis(full: Any, part: Any, count: int) -> int | None:
    """Return the axis that a part has one of `count` equal parts of; None if both are equal.

    Raises:
        Refused: they differ in another way.
    """
    one, other = tuple(full.shape), tuple(part.shape)
    apart = [at for at, sizes in enumerate(zip(one, other, strict=False)) if sizes[0] != sizes[1]]
    if len(one) != len(other) or len(apart) > 1 or full.dtype != part.dtype:
        raise Refused("another size of the batch is another program")
    if not apart:
        return None
    if one[apart[0]] != count * other[apart[0]]:
        raise Refused("a value has the batch as a part of an axis")
    return apart[0]


def _split(array: Any, axis: int, pair: Pair) -> Any:
    """Return an array as equal parts of an axis, the parts first."""
    shape, count, devices = array.shape, pair.count, pair.devices
    size = shape[axis] // count
    parts = array.reshape(*shape[:axis], devices, count, size // devices, *shape[axis + 1 :])
    parts = jax_module().numpy.moveaxis(parts, axis + 1, 0)
    return parts.reshape(count, *shape[:axis], size, *shape[axis + 1 :])


def _joined(parts: Any, axis: int, pair: Pair) -> Any:
    """Return the array that `_split` took apart."""
    count, *shape = parts.shape
    size, devices = shape[axis], pair.devices
    array = parts.reshape(count, *shape[:axis], devices, size // devices, *shape[axis + 1 :])
    array = jax_module().numpy.moveaxis(array, 0, axis + 1)
    return array.reshape(*shape[:axis], count * size, *shape[axis + 1 :])


def _bound(pair: Pair, consts: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the constants of a part, and the numbers of those to split.

    A constant that the trace of the part made itself, such as `np.arange(batch)`, is taken from it.
    """
    own = list(pair.part.closed.consts)
    found = [one if is_concrete(one) else full for one, full in zip(own, consts, strict=True)]
    split = [
        at for at, axis in enumerate(pair.axes) if axis is not None and not is_concrete(own[at])
    ]
    return found, split


# -- Microbatches ----------------------------------------------------------------------------------


def can_microbatch(pair: Pair) -> None:
    """Refuse a loss that is no mean over the batch by its shapes.

    Raises:
        Refused: it is none, or nothing of the batch is in it.
    """
    one, other = pair.full.closed.jaxpr, pair.part.closed.jaxpr
    if all(axis is None for axis in pair.axes):
        raise Refused("no value that the loss takes from outside has the batch as an axis")
    if pair.full.outputs != 1 or one.outvars[0].aval.shape or not is_inexact(one.outvars[0].aval):
        raise Refused("the loss is not a number, so it is not a mean over the batch")
    for var, small in zip(one.outvars[1:], other.outvars[1:], strict=True):
        if _axis(var.aval, small.aval, pair.count) is None and not is_inexact(var.aval):
            raise Refused("an auxiliary output is an integer, so it is not a mean over the batch")


def has_means_only(pair: Pair) -> bool:
    """Return whether no output of a loss has the batch as an axis."""
    outputs = zip(pair.full.closed.jaxpr.outvars, pair.part.closed.jaxpr.outvars, strict=True)
    return all(_axis(var.aval, small.aval, pair.count) is None for var, small in outputs)


def microbatched(pair: Pair, run: Changed) -> Changed:
    """Return a loss whose gradient is the mean of those of the parts of the batch.

    The gradient of each part is taken where the loss is computed, since the cotangent of a number
    only scales it; so nothing is computed twice.
    """
    jax = jax_module()
    part, count = pair.part, pair.count
    invars = part.closed.jaxpr.invars
    wanted = [at for at, var in enumerate(invars) if is_inexact(var.aval)]
    pairs = zip(pair.full.closed.jaxpr.outvars, part.closed.jaxpr.outvars, strict=True)
    axes = [_axis(var.aval, small.aval, count) for var, small in pairs]
    means = [at for at, axis in enumerate(axes) if axis is None]
    stacked = [at for at, axis in enumerate(axes) if axis is not None]

    def changed(closed: Any, inputs: Sequence[Any]) -> list[Any]:
        consts, split = _bound(pair, closed.consts)

        def one(given: Sequence[Any], parts: Sequence[Any]) -> Any:
            own = list(consts)
            for at, array in zip(split, parts, strict=True):
                own[at] = array

            def loss(*floats: Any) -> Any:
                values = list(given)
                for at, array in zip(wanted, floats, strict=True):
                    values[at] = array
                outputs = run(Closed(part.closed.jaxpr, own), values)
                return outputs[0], outputs

            main, pull, outputs = jax.vjp(loss, *(given[at] for at in wanted), has_aux=True)
            total = [outputs[at] for at in means], pull(jax.numpy.ones_like(main))
            return total, [outputs[at] for at in stacked]

        def forward(*given: Any) -> Any:
            parts = [_split(closed.consts[at], pair.axes[at] or 0, pair) for at in split]

            def body(total: Any, some: Any) -> Any:
                found, rest = one(given, some)
                return jax.tree.map(jax.numpy.add, total, found), rest

            shapes = jax.eval_shape(one, given, [array[0] for array in parts])[0]
            zeros = jax.tree.map(lambda aval: jax.numpy.zeros(aval.shape, aval.dtype), shapes)
            (outputs, grads), rest = jax.lax.scan(body, zeros, parts)
            found: list[Any] = [None] * len(axes)
            for at, array in zip(means, outputs, strict=True):
                found[at] = array / count
            for at, array in zip(stacked, rest, strict=True):
                found[at] = _joined(array, axes[at] or 0, pair)
            return found, [array / count for array in grads]

        def backward(grads: Any, cotangents: Any) -> Any:
            scaled = iter([cotangents[0].astype(one.dtype) * one for one in grads])
            return tuple(next(scaled) if at in wanted else None for at in range(len(invars)))

        loss = jax.custom_vjp(lambda *given: forward(*given)[0])
        loss.defvjp(forward, backward)
        return list(loss(*inputs))

    return changed


# -- Chunks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flat:
    """A loss at two sizes without nested functions: equations of the same number are the same."""

    full: Any
    """Jaxpr; its inputs are the constants of the loss, then its inputs."""
    part: Any
    axes: dict[Any, int | None]
    """The batch's axis of each value of `full`."""


@dataclass(frozen=True)
class Piece:
    """Equations that make a wide value and reduce it."""

    product: Any
    """The equation of the wide product."""
    members: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    """Values that are read outside; without an axis of the batch they are sums over it."""


def flat(pair: Pair, reader: Reader) -> Flat:
    """Return a loss at two sizes with its nested functions inlined.

    Raises:
        Refused: they differ in more than sizes.
    """
    full, part = _flat(pair.full.closed, reader), _flat(pair.part.closed, reader)
    names = [[eqn.primitive.name for eqn in jaxpr.eqns] for jaxpr in (full, part)]
    if names[0] != names[1]:
        raise Refused("another size of the batch is another program")
    axes: dict[Any, int | None] = {}
    made = [*zip(full.invars, part.invars, strict=True)]
    for one, other in zip(full.eqns, part.eqns, strict=True):
        made += zip(one.outvars, other.outvars, strict=True)
    for var, small in made:
        if not is_dropped(var) and hasattr(var.aval, "shape"):
            axes[var] = _axis(var.aval, small.aval, pair.count)
    return Flat(full, part, axes)


def _flat(closed: Any, reader: Reader) -> Any:
    jaxpr = closed.jaxpr

    def run(consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        return _inlined(Closed(jaxpr, consts), inputs, reader, None)

    avals = [var.aval for var in jaxpr.constvars], [var.aval for var in jaxpr.invars]
    return without_dead_code(jax_module().make_jaxpr(run)(*avals).jaxpr)


def _inlined(closed: Any, inputs: Sequence[Any], reader: Reader, source: Any) -> list[Any]:
    """Return the outputs of a closed jaxpr, bound without nested functions.

    Args:
        closed: of a loss, or nested in it.
        inputs: its inputs.
        reader: knows which nested functions are the user's.
        source: where the call of a library's function was written, which counts for what is in it.
    """
    env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, inputs, strict=True))

    def rule(eqn: Any, given: list[Any]) -> list[Any]:
        here = eqn if source is None else eqn.replace(source_info=source)
        nested = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive.name in JITS and hasattr(nested, "consts"):
            within = None if source is None and reader.nested(eqn) else here.source_info
            return _inlined(nested, given, reader, within)
        return bind(here, given)

    evaluate(closed.jaxpr.eqns, env, rule)
    return [value(var, env) for var in closed.jaxpr.outvars]


def piece(found: Flat) -> Piece:
    """Return the largest wide product of the batch that is reduced, with all up to its reductions.

    Raises:
        Refused: there is none, or it cannot be computed for parts of the batch.
    """
    reason = "no product outside of scans is much wider than its input and then reduced"
    products = [eqn for eqn in found.full.eqns if _is_wide(eqn, found)]
    for eqn in sorted(products, key=lambda eqn: -aval_bytes(eqn.outvars[0].aval)):
        try:
            return _piece(found, eqn)
        except Refused as why:
            reason = str(why)
    raise Refused(reason)


def _is_wide(eqn: Any, found: Flat) -> bool:
    if eqn.primitive.name != "dot_general":
        return False
    taken = [var for var in eqn.invars if not is_literal(var) and found.axes.get(var) is not None]
    is_batched = found.axes.get(eqn.outvars[0]) is not None and len(taken) == 1
    return is_batched and _size(eqn.outvars[0]) >= WIDER * _size(taken[0])


def _size(var: Any) -> int:
    return math.prod(getattr(var.aval, "shape", ()))


def _piece(found: Flat, product: Any) -> Piece:
    eqns, axes = found.full.eqns, found.axes
    least = _size(product.outvars[0])
    maker = {var: at for at, eqn in enumerate(eqns) for var in eqn.outvars}

    def is_wide(var: Any) -> bool:
        return not is_literal(var) and axes.get(var) is not None and 2 * _size(var) > least

    numbered = _numbered(eqns, axes)
    members = {next(at for at, eqn in enumerate(eqns) if eqn is product)}
    wide = {product.outvars[0]}
    while True:
        before = len(members)
        for at, eqn in enumerate(eqns):
            if at not in members and any(var in wide for var in eqn.invars if not is_literal(var)):
                members.add(at)
            if at in members:
                wide.update(var for var in eqn.outvars if is_wide(var))
        for at in sorted(members, reverse=True):
            for var in eqns[at].invars:
                if is_literal(var) or var not in maker or maker[var] in members:
                    continue
                source = eqns[maker[var]]
                if (is_wide(var) or var in numbered) and not _is_heavy(source):
                    members.add(maker[var])
                    wide.update(out for out in source.outvars if is_wide(out))
        members |= _between(eqns, members)
        if len(members) == before:
            break
    for at in members:
        if eqns[at] is not product and _is_heavy(eqns[at]):
            raise Refused(f"the wide value goes into {eqns[at].primitive.name}, not a reduction")
    inside = {var for at in members for var in eqns[at].outvars}
    read = {
        var for at, eqn in enumerate(eqns) if at not in members for var in eqn.invars
        if not is_literal(var)
    } | {var for var in found.full.outvars if not is_literal(var)}  # fmt: skip
    outputs = [
        var for at in sorted(members) for var in eqns[at].outvars if var in read and var in inside
    ]
    if any(is_wide(var) for var in outputs):
        raise Refused("the wide value is an output of the loss, too")
    for at in members:
        for var in eqns[at].outvars:
            is_mixed = axes.get(var) is None and any(
                axes.get(taken) is not None for taken in eqns[at].invars if not is_literal(taken)
            )
            is_sum = eqns[at].primitive.name == "reduce_sum" and not any(
                var in eqns[other].invars for other in members
            )
            if is_mixed and not is_dropped(var) and not is_sum:
                raise Refused("the wide value is reduced over the batch before it is narrow")
    if not any(eqns[at].primitive.name.startswith(("reduce_", "arg")) for at in members):
        raise Refused("the wide value is not reduced")
    taken = (var for at in sorted(members) for var in eqns[at].invars if not is_literal(var))
    inputs = dict.fromkeys(var for var in taken if var not in inside)
    return Piece(product, tuple(sorted(members)), tuple(inputs), tuple(outputs))


def _numbered(eqns: Sequence[Any], axes: Mapping[Any, int | None]) -> set[Any]:
    """Return the values that know the places of examples, such as `arange`: a part has its own."""
    found: set[Any] = set()
    for eqn in eqns:
        taken = [var for var in eqn.invars if not is_literal(var)]
        if not taken or any(var in found for var in taken):
            found.update(var for var in eqn.outvars if axes.get(var) is not None)
    return found


def _is_heavy(eqn: Any) -> bool:
    """Return whether an equation has products, or other equations with products, in it."""
    if eqn.primitive.name in ("dot_general", "scan", "while"):
        return True
    return any(work(jaxpr).count for jaxpr in inner_jaxprs(eqn))


def _between(eqns: Sequence[Any], members: set[int]) -> set[int]:
    """Return the equations that take a value of some, and give one to others of them."""
    after: set[Any] = set()
    down = set()
    for at, eqn in enumerate(eqns):
        if at in members or any(var in after for var in eqn.invars if not is_literal(var)):
            down.add(at)
            after.update(eqn.outvars)
    before: set[Any] = set()
    found = set()
    for at in range(len(eqns) - 1, -1, -1):
        if at in members or any(var in before for var in eqns[at].outvars):
            before.update(var for var in eqns[at].invars if not is_literal(var))
            if at in down:
                found.add(at)
    return found


def chunked(
    pair: Pair, found: Flat, piece: Piece, rule: Callable[[Any, list[Any]], list[Any]]
) -> Changed:
    """Return a loss that computes a piece for one part of the batch at a time, checkpointed.

    Args:
        pair: the loss at two sizes.
        found: the same, flat.
        piece: what of it is computed in parts.
        rule: evaluates the other equations.
    """
    jax = jax_module()
    full, part, axes = found.full, found.part, found.axes
    chosen = set(piece.members)
    small = {
        var: other
        for at in piece.members
        for these, those in (
            (full.eqns[at].invars, part.eqns[at].invars),
            (full.eqns[at].outvars, part.eqns[at].outvars),
        )
        for var, other in zip(these, those, strict=True)
        if not is_literal(var)
    }
    split = [var for var in piece.inputs if axes.get(var) is not None]
    kept = [var for var in piece.inputs if axes.get(var) is None]
    stacked = [var for var in piece.outputs if axes.get(var) is not None]
    sums = [var for var in piece.outputs if axes.get(var) is None]
    after: set[Any] = {var for at in piece.members for var in full.eqns[at].outvars}
    first: list[Any] = []
    second: list[Any] = []
    for at, eqn in enumerate(full.eqns):
        if at in chosen:
            continue
        is_after = any(var in after for var in eqn.invars if not is_literal(var))
        (second if is_after else first).append(eqn)
        if is_after:
            after.update(eqn.outvars)

    def in_parts(env: dict[Any, Any]) -> None:
        def one(fixed: Sequence[Any], parts: Sequence[Any]) -> Any:
            own = dict(zip((small[var] for var in kept), fixed, strict=True))
            own.update(zip((small[var] for var in split), parts, strict=True))
            evaluate([part.eqns[at] for at in piece.members], own, bind)
            return [own[small[var]] for var in sums], [own[small[var]] for var in stacked]

        fixed = [env[var] for var in kept]
        parts = [_split(env[var], axes[var] or 0, pair) for var in split]
        checkpointed = jax.checkpoint(one, prevent_cse=False)

        def body(total: Any, some: Any) -> Any:
            more, rest = checkpointed(fixed, some)
            return [a + b for a, b in zip(total, more, strict=True)], rest

        zeros = [jax.numpy.zeros(var.aval.shape, var.aval.dtype) for var in sums]
        totals, rest = jax.lax.scan(body, zeros, parts)
        env.update(zip(sums, totals, strict=True))
        for var, array in zip(stacked, rest, strict=True):
            env[var] = _joined(array, axes[var] or 0, pair)

    def changed(closed: Any, inputs: Sequence[Any]) -> list[Any]:
        env = dict(zip(full.invars, [*closed.consts, *inputs], strict=True))
        evaluate(first, env, rule)
        in_parts(env)
        evaluate(second, env, rule)
        return [value(var, env) for var in full.outvars]

    return changed


# -- The check -------------------------------------------------------------------------------------


def compared(one: Gradient, written: Changed, changed: Changed) -> str:
    """Return how far a changed loss agrees with one as written, in words; '' if too large to run.

    Both run on the CPU of this machine, for random numbers: value, gradients, auxiliary outputs.

    Raises:
        Refused: they do not agree to rounding.
    """
    run, given = gradient(one, written)
    other, _ = gradient(one, changed)
    jaxpr = jax_module().make_jaxpr(run)(*given).jaxpr
    held = sum(aval_bytes(aval) for aval in (*given[0], *given[1]))
    if work(jaxpr).operations > CHECKED_WORK or held + live_peak(jaxpr) > CHECKED_BYTES:
        return ""
    jax = jax_module()
    both = jax.jit(run), jax.jit(other)
    worst = None
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for low, high, whole in DRAWS:
            values = _random(one, given, low, high, whole)
            wanted, got = (_floats(each(*values)) for each in both)
            if all(np.isfinite(array).all() for arrays in wanted for array in arrays):
                apart = [_worst(*pair) for pair in zip(wanted, got, strict=True)]
                worst = float(np.max([worst or 0.0, *apart]))  # NaN, if one is
    if worst is None:
        raise Refused("the loss of random numbers is not finite, so it cannot be checked")
    if not worst <= ROUNDING:
        what = f"value or gradients differ by {worst:.1%}"
        if not math.isfinite(worst):
            what = "it is not finite"
        raise Refused(f"it computes something else: on {CHECKED} random examples, {what}")
    return f"checked on {CHECKED} random examples: equal to {ROUNDING:.0e}"


def _floats(found: tuple[Any, Any, Any]) -> list[list[Any]]:
    """Return the arrays of values, auxiliary outputs and gradients."""
    return [
        [
            np.asarray(leaf, np.float64)
            for leaf in jax_module().tree.leaves(part)
            if is_inexact(leaf)
        ]
        for part in found
    ]


def _worst(wanted: Sequence[Any], got: Sequence[Any]) -> float:
    """Return the largest difference as a share of the largest number of its array; NaN, if one is.

    In an array that is zero except for rounding, it is a share of the largest number of all.
    """
    largest = [float(np.abs(array).max(initial=0.0)) for array in wanted]
    least = max(largest, default=0.0) * math.sqrt(ROUNDING)
    shares = [
        float(np.abs(one - other).max(initial=0.0)) / max(most, least, 1e-30)
        for one, other, most in zip(wanted, got, largest, strict=True)
    ]
    return float(np.max(shares, initial=0.0))


def _random(
    one: Gradient, given: tuple[Any, ...], low: float, high: float, whole: Sequence[int]
) -> list[list[Any]]:
    """Return random inputs and constants of a loss, and a cotangent of one."""
    jax = jax_module()
    draw = np.random.default_rng(0)

    def array(aval: Any) -> Any:
        shape = tuple(aval.shape)
        if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key):
            return jax.numpy.broadcast_to(jax.random.key(0), shape)
        if not is_inexact(aval):
            is_signed = np.issubdtype(aval.dtype, np.signedinteger)
            return jax.numpy.asarray(draw.choice(whole if is_signed else (0, 1), shape), aval.dtype)
        scale = math.sqrt(shape[-2]) if len(shape) > 1 else 1.0
        return jax.numpy.asarray(draw.uniform(low, high, shape) * 3 / max(scale, 3.0), aval.dtype)

    consts = [
        const if is_concrete(const) else array(aval)
        for const, aval in zip(one.closed.consts, given[1], strict=True)
    ]
    ones = [jax.numpy.ones(aval.shape, aval.dtype) for aval in given[2]]
    return [[array(aval) for aval in given[0]], consts, ones]
