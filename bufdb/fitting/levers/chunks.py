"""The widest product and all up to its reductions, for one part of the batch at a time.

find     such as logits and the loss over a vocabulary, outside of scans
trace    a scan over parts of the batch computes the piece of each, checkpointed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.also import Also, Made, Rewrite, applicable, places
from bufdb.fitting.counting import aval_bytes, inner_jaxprs, is_dropped, is_literal, work
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Closed
from bufdb.fitting.jax_inside import (
    JITS,
    Changed,
    bind,
    evaluate,
    site_of,
    value,
    without_dead_code,
)
from bufdb.fitting.plans import Change
from bufdb.fitting.reader import Reader
from bufdb.fitting.rewrites import Pair, axis_of, joined, split

WIDER = 2
"""How many times as large as its input a product must be to be wide."""


class Chunks(Rewrite):
    """A wide piece of the loss in parts; all numbers of parts cost the same."""

    name = "chunks"
    counts = (8, 4, 2)
    assumed = "assumes that these lines mix no examples"
    is_first_enough = True

    def change(self, also: Also, count: int) -> Change:
        """Return the change that computes the widest product for one part at a time."""
        pairs = also.pairs(count)
        pieces: dict[int, tuple[_Flat, _Piece]] = {}

        def look(pair: Pair) -> None:
            both = _flat(pair, also.reader)
            pieces[pairs.index(pair)] = both, _piece(both)

        chosen, why = applicable(pairs, look)
        if not chosen:
            raise Refused(why)

        def at_check(pair: Pair) -> Changed:
            both = _flat(pair, also.reader)
            return _changed(pair, both, _piece(both), bind)

        ground = also.checked(self, chosen, at_check)

        def made(at: int) -> Made:
            if at not in pieces:
                return lambda replay: replay.run
            return lambda replay: _changed(pairs[at], *pieces[at], replay.equation)

        key = f"{self.name}={count}"
        also.made[key] = [made(at) for at in range(len(pairs))]
        sites = sorted(
            {
                site
                for both, one in pieces.values()
                for at in one.members
                if (site := site_of(both.full.eqns[at], also.reader.files)) is not None
            }
        )
        shapes = [list(one.product.outvars[0].aval.shape) for _, one in pieces.values()]
        where, size = places(sites) or "the loss", also.batch.size // count
        return Change(
            key,
            f"{shapes[0]} at {where} in {count} chunks of {size}",
            f"put these lines into a function f of one of {count} equal parts of the batch "
            f"({also.each(size)}), and call jax.lax.map(jax.checkpoint(f), parts)",
            where,
            ground,
            tuple(sites),
        )


# -- The piece -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flat:
    """A loss at two sizes without nested functions: equations of the same number are the same."""

    full: Any
    """Jaxpr; its inputs are the constants of the loss, then its inputs."""
    part: Any
    axes: dict[Any, int | None]
    """The batch's axis of each value of `full`."""


@dataclass(frozen=True)
class _Piece:
    """Equations that make a wide value and reduce it."""

    product: Any
    """The equation of the wide product."""
    members: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    """Values that are read outside; without an axis of the batch they are sums over it."""


def _flat(pair: Pair, reader: Reader) -> _Flat:
    """Return a loss at two sizes with its nested functions inlined.

    Raises:
        Refused: they differ in more than sizes.
    """
    full, part = _inlined_jaxpr(pair.full.closed, reader), _inlined_jaxpr(pair.part.closed, reader)
    names = [[eqn.primitive.name for eqn in jaxpr.eqns] for jaxpr in (full, part)]
    if names[0] != names[1]:
        raise Refused("another size of the batch is another program")
    axes: dict[Any, int | None] = {}
    made = [*zip(full.invars, part.invars, strict=True)]
    for one, other in zip(full.eqns, part.eqns, strict=True):
        made += zip(one.outvars, other.outvars, strict=True)
    for var, small in made:
        if not is_dropped(var) and hasattr(var.aval, "shape"):
            axes[var] = axis_of(var.aval, small.aval, pair.count)
    return _Flat(full, part, axes)


def _inlined_jaxpr(closed: Any, reader: Reader) -> Any:
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

    def rule(eqn: Any, values: list[Any]) -> list[Any]:
        here = eqn if source is None else eqn.replace(source_info=source)
        nested = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive.name in JITS and hasattr(nested, "consts"):
            within = None if source is None and reader.nested(eqn) else here.source_info
            return _inlined(nested, values, reader, within)
        return bind(here, values)

    evaluate(closed.jaxpr.eqns, env, rule)
    return [value(var, env) for var in closed.jaxpr.outvars]


def _piece(flat: _Flat) -> _Piece:
    """Return the largest wide product of the batch that is reduced, with all up to its reductions.

    Raises:
        Refused: there is none, or it cannot be computed for parts of the batch.
    """
    reason = "no product outside of scans is much wider than its input and then reduced"
    products = [eqn for eqn in flat.full.eqns if _is_wide(eqn, flat)]
    for eqn in sorted(products, key=lambda eqn: -aval_bytes(eqn.outvars[0].aval)):
        try:
            return _piece_of(flat, eqn)
        except Refused as why:
            reason = str(why)
    raise Refused(reason)


def _is_wide(eqn: Any, flat: _Flat) -> bool:
    if eqn.primitive.name != "dot_general":
        return False
    taken = [var for var in eqn.invars if not is_literal(var) and flat.axes.get(var) is not None]
    is_batched = flat.axes.get(eqn.outvars[0]) is not None and len(taken) == 1
    return is_batched and _size(eqn.outvars[0]) >= WIDER * _size(taken[0])


def _size(var: Any) -> int:
    return math.prod(getattr(var.aval, "shape", ()))


def _piece_of(flat: _Flat, product: Any) -> _Piece:
    eqns, axes = flat.full.eqns, flat.axes
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
    } | {var for var in flat.full.outvars if not is_literal(var)}  # fmt: skip
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
    return _Piece(product, tuple(sorted(members)), tuple(inputs), tuple(outputs))


def _numbered(eqns: Sequence[Any], axes: Mapping[Any, int | None]) -> set[Any]:
    """Return the values that know the places of examples, such as `arange`: a part has its own."""
    numbered: set[Any] = set()
    for eqn in eqns:
        taken = [var for var in eqn.invars if not is_literal(var)]
        if not taken or any(var in numbered for var in taken):
            numbered.update(var for var in eqn.outvars if axes.get(var) is not None)
    return numbered


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
    between = set()
    for at in range(len(eqns) - 1, -1, -1):
        if at in members or any(var in before for var in eqns[at].outvars):
            before.update(var for var in eqns[at].invars if not is_literal(var))
            if at in down:
                between.add(at)
    return between


def _changed(
    pair: Pair, flat: _Flat, piece: _Piece, rule: Callable[[Any, list[Any]], list[Any]]
) -> Changed:
    """Return a loss that computes a piece for one part of the batch at a time, checkpointed.

    Args:
        pair: the loss at two sizes.
        flat: the same, flat.
        piece: what of it is computed in parts.
        rule: evaluates the other equations.
    """
    jax = jax_module()
    full, part, axes = flat.full, flat.part, flat.axes
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
    parted = [var for var in piece.inputs if axes.get(var) is not None]
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
            own.update(zip((small[var] for var in parted), parts, strict=True))
            evaluate([part.eqns[at] for at in piece.members], own, bind)
            return [own[small[var]] for var in sums], [own[small[var]] for var in stacked]

        fixed = [env[var] for var in kept]
        parts = [split(env[var], axes[var] or 0, pair) for var in parted]
        checkpointed = jax.checkpoint(one, prevent_cse=False)

        def body(total: Any, some: Any) -> Any:
            more, rest = checkpointed(fixed, some)
            return [a + b for a, b in zip(total, more, strict=True)], rest

        zeros = [jax.numpy.zeros(var.aval.shape, var.aval.dtype) for var in sums]
        totals, rest = jax.lax.scan(body, zeros, parts)
        env.update(zip(sums, totals, strict=True))
        for var, array in zip(stacked, rest, strict=True):
            env[var] = joined(array, axes[var] or 0, pair)

    def changed(closed: Any, inputs: Sequence[Any]) -> list[Any]:
        env = dict(zip(full.invars, [*closed.consts, *inputs], strict=True))
        evaluate(first, env, rule)
        in_parts(env)
        evaluate(second, env, rule)
        return [value(var, env) for var in full.outvars]

    return changed
