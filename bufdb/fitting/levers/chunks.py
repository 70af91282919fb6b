"""The widest product and all up to its reductions, for one part of the batch at a time.

find     such as logits and the loss over a vocabulary, outside of scans
trace    a scan over parts of the batch computes the piece of each, checkpointed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.also import (
    Also,
    Made,
    Rewrite,
    applicable,
    as_planned,
    divided,
    places,
)
from bufdb.fitting.chunked import put_in_chunks
from bufdb.fitting.counting import (
    aval_bytes,
    inner_jaxprs,
    is_dropped,
    is_inexact,
    is_literal,
    work,
)
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.flat import Flat, flattened
from bufdb.fitting.heads import head_of
from bufdb.fitting.jax_inside import (
    SHARD_MAPS,
    Changed,
    Files,
    bind,
    evaluate,
    frames,
    site_of,
    value,
)
from bufdb.fitting.leaving import leaving
from bufdb.fitting.plans import Callee, Change, Local, Site
from bufdb.fitting.rewrites import Pair, joined, split
from bufdb.fitting.wide import Piece, Place, expressions, inside, locals_of

_REDUCED = {"reduce_sum": "add", "reduce_max": "maximum", "reduce_min": "minimum"}
"""By what reduces the batch, the operation of NumPy that joins what it gives for two parts."""
MOST_CHUNKS = 8
"""Chunks that are enough: more make the loss smaller, but not what is there besides."""
WIDER = 2
"""How many times as large as its input a product must be to be wide; advised_chunk_values asks the
same of weights."""


class Chunks(Rewrite):
    """A wide piece of the loss in parts; all numbers of parts cost the same."""

    name = "chunks"
    assumed = "assumes that these lines mix no examples"
    is_first_enough = True
    is_inner = True

    def counts(self, size: int) -> Sequence[int]:
        """Return into how many chunks a batch is divided: 8 or what is next below, then more."""
        return sorted(divided(size), key=lambda count: (count > MOST_CHUNKS, -count))

    def change(self, also: Also, count: int, within: Change | None = None) -> Change:
        """Return the change that computes the widest product for one part at a time."""
        pairs = also.pairs(count, within)
        pieces: dict[int, tuple[Flat, _Piece]] = {}

        def look(pair: Pair) -> None:
            both, at = flattened(pair, also.reader), pairs.index(pair)
            try:
                pieces[at] = both, _piece(both)
            except _RefusedAt as why:
                files = also.reader.files
                where = places([site] if (site := site_of(why.eqn, files)) is not None else [])
                if why.leaving is not None:
                    where = leaving(why.eqn, why.leaving, also.losses[at], at, also.step, files)
                raise Refused(f"{why}: {where}" if where else str(why)) from why

        chosen, why = applicable(pairs, look)
        if not chosen:
            raise Refused(why)

        def at_check(pair: Pair) -> Changed:
            both = flattened(pair, also.reader)
            return _changed(pair, both, _piece(both), _plainly)

        ground = also.checked(self, chosen, at_check)

        def made(at: int) -> Made:
            if at not in pieces:
                return as_planned
            return lambda replay: _changed(pairs[at], *pieces[at], replay.some)

        key = f"{self.name}={count}"
        keys = (key,) if within is None else (within.key, key)
        each = [made(at) for at in range(len(pairs))]
        if within is not None:
            each = [also.around[within.key](at, one) for at, one in enumerate(each)]
        also.made[keys] = each
        sites = sorted(
            {
                site
                for both, one in pieces.values()
                for at in one.members
                if (site := site_of(both.full.eqns[at], also.reader.files)) is not None
            }
        )
        shapes = [list(one.product.outvars[0].aval.shape) for _, one in pieces.values()]
        where, size = places(sites) or "the loss", also.size(within) // count
        return Change(
            key,
            f"{shapes[0]} at {where} in {count} chunks of {size}",
            f"put these lines into a function f of one of {count} equal parts of the batch "
            f"({also.each(size)}), and call jax.lax.map(jax.checkpoint(f), parts)",
            where,
            ground,
            tuple(sites),
            count,
            devices=also.batch.devices,
            within="" if within is None else within.key,
            **_shown(also, pieces, count, within),
        )

    def edit_one(self, editing: Editing, change: Change) -> None:
        """Put the lines into a function of one part of the batch."""
        sites = [one.site for one in change.expressions if one.is_member] or change.sites
        if sites:
            editing.attempt(sites[0], change.step, put_in_chunks, change)
        else:
            super().edit_one(editing, change)


def _shown(
    also: Also,
    pieces: Mapping[int, tuple[Flat, _Piece]],
    count: int,
    within: Change | None,
) -> dict[str, Any]:
    """Return what an edit needs to know of the piece, or why there is none."""
    if len(pieces) > 1:
        return {"obstacle": "several losses have such lines"}
    ((flat, piece),) = pieces.values()
    least = _size(piece.product.outvars[0])
    wide = Piece(flat, piece.members, count, lambda var: 2 * _size(var) > least)
    size, files = also.size(within), also.reader.files

    def names(place: Place) -> tuple[Local, ...]:
        full, part = also.watched(size, place), also.watched(size // count, place)
        return locals_of(full, part, count)

    try:
        place, some = expressions(wide, files)
    except Refused as why:
        return {"obstacle": str(why)}
    shown: dict[str, Any] = {"expressions": some, "names": names(place)}
    calls = [one.site for one in some if one.is_member and one.gives == "wide" and one.why_not]
    if len(calls) == 1 and _is_alone(flat, piece, calls[0], files):
        full, part = also.headed(size, least), also.headed(size // count, least // count)
        if (head := head_of(full, part, count, calls[0])) is not None:
            return {**shown, "head": head}
    if len(calls) == 1:
        with suppress(Refused):
            place, some = inside(wide, files, calls[0])
            shown["callee"] = Callee(calls[0], some, names(place))
    return shown


def _is_alone(flat: Flat, piece: _Piece, call: Site, files: Files) -> bool:
    """Return whether a call makes the wide value of one value of its own, which has the batch."""
    eqns = flat.full.eqns
    own = {
        var
        for at, eqn in enumerate(eqns)
        if at not in piece.members and any(one.site == call for one in frames(eqn, files))
        for var in eqn.outvars
    }
    taken = [
        var for at in piece.members for var in eqns[at].invars
        if not is_literal(var) and var in own and flat.axes.get(var) is not None
    ]  # fmt: skip
    return len(taken) == 1


# -- The piece -------------------------------------------------------------------------------------


class _RefusedAt(Refused):
    """Why a wide value cannot be computed in parts, with the equation."""

    def __init__(self, why: str, eqn: Any, leaving: Any = None) -> None:
        """Take the abstract value of what is an output of the loss, if that is why."""
        super().__init__(why)
        self.eqn, self.leaving = eqn, leaving


@dataclass(frozen=True)
class _Piece:
    """Equations that make a wide value and reduce it."""

    product: Any
    """The equation of the wide product."""
    members: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    """Values that are read outside; without an axis of the batch they are reduced over it."""


def _piece(flat: Flat) -> _Piece:
    """Return the largest wide product of the batch that is reduced, with all up to its reductions.

    Raises:
        Refused: there is none, or it cannot be computed for parts of the batch.
    """
    products = [eqn for eqn in flat.full.eqns if _is_wide(eqn, flat)]
    largest: Refused | None = None
    for eqn in sorted(products, key=lambda eqn: -aval_bytes(eqn.outvars[0].aval)):
        try:
            return _piece_of(flat, eqn)
        except Refused as why:
            largest = largest or why
    none = "no product outside of scans is much wider than its input and then reduced"
    if any(eqn.primitive.name in SHARD_MAPS and _is_heavy(eqn) for eqn in flat.full.eqns):
        none = "the loss is within a shard_map"  # in the words of advised_chunk_values.obstacle
    raise largest or Refused(none)


def _is_wide(eqn: Any, flat: Flat) -> bool:
    if eqn.primitive.name != "dot_general":
        return False
    taken = [var for var in eqn.invars if not is_literal(var) and flat.axes.get(var) is not None]
    is_batched = flat.axes.get(eqn.outvars[0]) is not None and len(taken) == 1
    return is_batched and _size(eqn.outvars[0]) >= WIDER * _size(taken[0])


def _size(var: Any) -> int:
    return math.prod(getattr(var.aval, "shape", ()))


def _piece_of(flat: Flat, product: Any) -> _Piece:
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
            why = f"the wide value goes into {eqns[at].primitive.name}, not a reduction"
            raise _RefusedAt(why, eqns[at])
    inside = {var for at in members for var in eqns[at].outvars}
    read = {
        var for at, eqn in enumerate(eqns) if at not in members for var in eqn.invars
        if not is_literal(var)
    } | {var for var in flat.full.outvars if not is_literal(var)}  # fmt: skip
    outputs = [
        var for at in sorted(members) for var in eqns[at].outvars if var in read and var in inside
    ]
    if leaving := [var for var in outputs if is_wide(var)]:
        why = "the wide value is an output of the loss, too"
        raise _RefusedAt(why, eqns[maker[leaving[0]]], leaving[0].aval)
    for at in members:
        for var in eqns[at].outvars:
            is_mixed = axes.get(var) is None and any(
                axes.get(taken) is not None for taken in eqns[at].invars if not is_literal(taken)
            )
            is_last = eqns[at].primitive.name in _REDUCED and not any(
                var in eqns[other].invars for other in members
            )
            if is_mixed and not is_dropped(var) and not is_last:
                why = "the wide value is reduced over the batch before it is narrow"
                raise _RefusedAt(why, eqns[at])
    if not any(eqns[at].primitive.name.startswith(("reduce_", "arg")) for at in members):
        raise _RefusedAt("the wide value is not reduced", product)
    taken = (var for at in sorted(members) for var in eqns[at].invars if not is_literal(var))
    inputs = dict.fromkeys(var for var in taken if var not in inside)
    return _Piece(product, tuple(sorted(members)), tuple(inputs), tuple(outputs))


def _numbered(eqns: Sequence[Any], axes: Mapping[Any, int | None]) -> set[Any]:
    """Return the values that know the places of examples, such as `arange`: a part has its own."""
    numbered: set[Any] = set()
    for eqn in eqns:
        taken = [var for var in eqn.invars if not is_literal(var)]
        is_made = not taken and eqn.primitive.name != "broadcast_in_dim"  # of a number
        if is_made or any(var in numbered for var in taken):
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


def _before_and_after(eqns: Sequence[Any], members: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Return the other equations: those that take nothing of some, and those that do."""
    after: set[Any] = {var for at in members for var in eqns[at].outvars}
    first: list[Any] = []
    second: list[Any] = []
    for at, eqn in enumerate(eqns):
        if at in members:
            continue
        is_after = any(var in after for var in eqn.invars if not is_literal(var))
        (second if is_after else first).append(eqn)
        if is_after:
            after.update(eqn.outvars)
    return first, second


Run = Callable[[Sequence[Any], Sequence[Any], dict[Any, Any]], None]
"""Receives equations, the values that are read after them, and the environment for theirs."""


def _plainly(eqns: Sequence[Any], _read: Sequence[Any], env: dict[Any, Any]) -> None:
    evaluate(eqns, env, bind)


def _changed(pair: Pair, flat: Flat, piece: _Piece, run: Run) -> Changed:
    """Return a loss that computes a piece for one part of the batch at a time, checkpointed.

    Args:
        pair: the loss at two sizes.
        flat: the same, flat.
        piece: what of it is computed in parts.
        run: evaluates the other equations.
    """
    jax = jax_module()
    full, part, axes = flat.full, flat.part, flat.axes
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
    reduced = [var for var in piece.outputs if axes.get(var) is None]
    maker = {
        var: full.eqns[at].primitive.name for at in piece.members for var in full.eqns[at].outvars
    }
    eqns = [_with_numbers(part.eqns[at], full.eqns[at]) for at in piece.members]
    first, second = _before_and_after(full.eqns, piece.members)

    def in_parts(env: dict[Any, Any]) -> None:
        def one(fixed: Sequence[Any], parts: Sequence[Any]) -> Any:
            own = dict(zip((small[var] for var in kept), fixed, strict=True))
            own.update(zip((small[var] for var in parted), parts, strict=True))
            evaluate(eqns, own, bind)
            return [own[small[var]] for var in reduced], [own[small[var]] for var in stacked]

        fixed = [env[var] for var in kept]
        parts = [split(env[var], axes[var] or 0, pair) for var in parted]
        checkpointed = jax.checkpoint(one, prevent_cse=False)

        def body(total: Any, some: Any) -> Any:
            more, rest = checkpointed(fixed, some)
            return [join(a, b) for join, a, b in zip(joins, total, more, strict=True)], rest

        joins = [getattr(jax.numpy, _REDUCED[maker[var]]) for var in reduced]
        begin = [_nothing(maker[var], var.aval) for var in reduced]
        totals, rest = jax.lax.scan(body, begin, parts)
        env.update(zip(reduced, totals, strict=True))
        for var, array in zip(stacked, rest, strict=True):
            env[var] = joined(array, axes[var] or 0, pair)

    def changed(closed: Any, inputs: Sequence[Any]) -> list[Any]:
        env = dict(zip(full.invars, [*closed.consts, *inputs], strict=True))
        later = [var for eqn in second for var in eqn.invars if not is_literal(var)]
        run(first, [*piece.inputs, *later, *full.outvars], env)
        in_parts(env)
        run(second, full.outvars, env)
        return [value(var, env) for var in full.outvars]

    return changed


def _with_numbers(eqn: Any, full: Any) -> Any:
    """Return an equation of a part with the numbers of the whole, such as its count of tokens."""
    pairs = zip(eqn.invars, full.invars, strict=True)
    return eqn.replace(invars=[whole if is_literal(whole) else var for var, whole in pairs])


def _nothing(name: str, aval: Any) -> Any:
    """Return what a reduction gives for no examples."""
    numpy, dtype = jax_module().numpy, aval.dtype
    if name == "reduce_sum":
        return numpy.zeros(aval.shape, dtype)
    if is_inexact(aval):
        least, most = -numpy.inf, numpy.inf
    else:
        least, most = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    return numpy.full(aval.shape, least if name == "reduce_max" else most, dtype)
