"""Gradients of parts of the batch, one after another: `microbatched(GRADIENT, 4, (1, 2))(…)`.

trace    a scan over parts of the batch takes the gradient of each; the mean is the gradient
edit     where the gradient has the batch from nothing else than arguments of its call, which
are parameters of the user's function, or items of them
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.also import (
    Also,
    Made,
    Rewrite,
    applicable,
    as_planned,
    as_written,
    places,
)
from bufdb.fitting.counting import is_inexact
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Closed
from bufdb.fitting.jax_inside import Changed, Files, site_of
from bufdb.fitting.metrics import Metric, metrics
from bufdb.fitting.mixing import mixing
from bufdb.fitting.plans import Change
from bufdb.fitting.rewrites import Pair, axis_of, bound, joined, split
from bufdb.fitting.source import FUNCTIONS, Source

_HELPER = '''\
def {name}(gradient, count, batch):
    """Return a gradient as the mean over `count` equal parts of its arguments `batch`."""

    def split(x):
        {split}

    def of_part(args, parts):
        return gradient(*(parts.get(at, one) for at, one in enumerate(args)))

    def mean(*args):
        def add(total, parts):
            return {jax}.tree.map({jax}.numpy.add, total, of_part(args, parts)), None

        parts = {{at: {jax}.tree.map(split, args[at]) for at in batch}}
        one = {jax}.tree.map(lambda x: x[0], parts)
        shapes = {jax}.eval_shape(of_part, args, one)
        zeros = {jax}.tree.map(lambda x: {jax}.numpy.zeros(x.shape, x.dtype), shapes)
        total, _ = {jax}.lax.scan(add, zeros, parts)
        return {jax}.tree.map(lambda x: x / count, total)

    return mean


'''
_SPLIT = "return x.reshape(count, x.shape[0] // count, *x.shape[1:])"
_SPLIT_SHARDED = """# A part has an equal share of each of the {devices} devices.
        x = x.reshape({devices}, count, -1, *x.shape[1:]).swapaxes(0, 1)
        return x.reshape(count, -1, *x.shape[3:])"""
_GRADIENTS = ("jax.grad", "jax.value_and_grad")


class Microbatch(Rewrite):
    """The gradient as the mean of those of equal parts of the batch."""

    name = "microbatch"
    assumed = "assumes that the loss is a mean over the batch"

    def change(self, also: Also, count: int, within: Change | None = None) -> Change:
        """Return the change that takes the gradient of the batch in parts."""
        pairs = also.pairs(count, within)
        known: dict[int, list[Metric | None]] = {}

        def look(pair: Pair) -> None:
            kinds = metrics(pair, also.reader)
            _require(pair, kinds)
            known[pairs.index(pair)] = kinds

        chosen, why = applicable(pairs, look)
        if not chosen:
            raise Refused(why)
        ground = also.checked(
            self, chosen, lambda pair: _changed(pair, metrics(pair, also.reader), as_written)
        )
        if ground.startswith(self.assumed):  # nothing was run that would have shown it
            for number in chosen:
                _require_apart(pairs[number], also.reader.files)

        def made(at: int, of_part: Made) -> Made:
            if at not in chosen:
                return as_planned
            return lambda replay: _changed(pairs[at], known[at], of_part(replay))

        key = f"{self.name}={count}"
        also.around[key] = made
        also.made[(key,)] = [made(at, as_planned) for at in range(len(pairs))]
        size, names = also.batch.size // count, also.batch.names
        sites = [site for at in chosen if (site := also.losses[at].site) is not None]
        where = places(sites)
        at = f" at {where}" if where else ""
        return Change(
            key,
            f"gradient{at} in {count} microbatches of {size}",
            f"in jax.lax.scan over {count} equal parts of {', '.join(names)} "
            f"({also.each(size)}) take this gradient of each part, and return the mean of the "
            "losses and of the gradients",
            where or "the gradient",
            ground,
            tuple(sites),
            count,
            names if all(_has_means_only(pairs[at], known[at]) for at in chosen) else (),
            also.batch.devices,
        )

    def edit_one(self, editing: Editing, change: Change) -> None:
        """Put a helper around the gradient where the batch is in its arguments alone."""
        if change.batch and len(change.sites) == 1:
            editing.attempt(change.sites[0], change.step, _edit, change)
        else:
            super().edit_one(editing, change)


# -- The loss --------------------------------------------------------------------------------------


def _require(pair: Pair, kinds: Sequence[Metric | None]) -> None:
    """Refuse a loss that is no mean over the batch by its shapes.

    An auxiliary output that is an integer is a sum, or the same for each part of the batch.

    Raises:
        Refused: it is none, or nothing of the batch is in it.
    """
    one, other = pair.full.closed.jaxpr, pair.part.closed.jaxpr
    if all(axis is None for axis in pair.axes):
        raise Refused("no value that the loss takes from outside has the batch as an axis")
    if pair.full.outputs != 1 or one.outvars[0].aval.shape or not is_inexact(one.outvars[0].aval):
        raise Refused("the loss is not a number, so it is not a mean over the batch")
    for at, var in enumerate(one.outvars):
        is_number = axis_of(var.aval, other.outvars[at].aval, pair.count) is None
        if at and is_number and not is_inexact(var.aval) and kinds[at] not in ("sum", "same"):
            what = pair.full.output(at)
            raise Refused(f"{what} is an integer that is no sum over the batch, and so no mean")


def _require_apart(pair: Pair, files: Files) -> None:
    """Refuse a loss that mixes the examples of the batch.

    Raises:
        Refused: it does; with the line.
    """
    eqns = mixing(pair)
    if eqns:
        sites = (site_of(eqn, files) for eqn in eqns)
        where = next((places([site]) for site in sites if site is not None), "the loss")
        raise Refused(
            f"{where} has a value of the whole batch in each of its examples, as batch "
            "normalization does: it is another one for a part of the batch"
        )


def _has_means_only(pair: Pair, kinds: Sequence[Metric | None]) -> bool:
    """Return whether no output of a loss has the batch as an axis, or is a sum over it."""
    outputs = zip(pair.full.closed.jaxpr.outvars, pair.part.closed.jaxpr.outvars, strict=True)
    return "sum" not in kinds[1:] and all(
        axis_of(var.aval, small.aval, pair.count) is None and is_inexact(var.aval)
        for var, small in outputs
    )


def _changed(pair: Pair, kinds: Sequence[Metric | None], run: Changed) -> Changed:
    """Return a loss whose gradient is the mean of those of the parts of the batch.

    Its auxiliary outputs are means, too, except those that are known to be sums.
    The gradient of each part is taken where the loss is computed, since the cotangent of a number
    only scales it; so nothing is computed twice.
    """
    jax = jax_module()
    part, count = pair.part, pair.count
    invars = part.closed.jaxpr.invars
    wanted = [at for at, var in enumerate(invars) if is_inexact(var.aval)]
    pairs = zip(pair.full.closed.jaxpr.outvars, part.closed.jaxpr.outvars, strict=True)
    axes = [axis_of(var.aval, small.aval, count) for var, small in pairs]
    means = [at for at, axis in enumerate(axes) if axis is None]
    stacked = [at for at, axis in enumerate(axes) if axis is not None]

    def changed(closed: Any, inputs: Sequence[Any]) -> list[Any]:
        consts, parted = bound(pair, closed.consts)

        def one(operands: Sequence[Any], parts: Sequence[Any]) -> Any:
            own = list(consts)
            for at, array in zip(parted, parts, strict=True):
                own[at] = array

            def loss(*floats: Any) -> Any:
                values = list(operands)
                for at, array in zip(wanted, floats, strict=True):
                    values[at] = array
                outputs = run(Closed(part.closed.jaxpr, own), values)
                return outputs[0], outputs

            main, pull, outputs = jax.vjp(loss, *(operands[at] for at in wanted), has_aux=True)
            total = [outputs[at] for at in means], pull(jax.numpy.ones_like(main))
            return total, [outputs[at] for at in stacked]

        def forward(*operands: Any) -> Any:
            parts = [split(closed.consts[at], pair.axes[at] or 0, pair) for at in parted]

            def body(total: Any, some: Any) -> Any:
                sums, rest = one(operands, some)
                return jax.tree.map(jax.numpy.add, total, sums), rest

            shapes = jax.eval_shape(one, operands, [array[0] for array in parts])[0]
            zeros = jax.tree.map(lambda aval: jax.numpy.zeros(aval.shape, aval.dtype), shapes)
            (outputs, grads), rest = jax.lax.scan(body, zeros, parts)
            sums: list[Any] = [None] * len(axes)
            for at, array in zip(means, outputs, strict=True):
                sums[at] = _whole(array, kinds[at] if at else "mean", count)
            for at, array in zip(stacked, rest, strict=True):
                sums[at] = joined(array, axes[at] or 0, pair)
            return sums, [array / count for array in grads]

        def backward(grads: Any, cotangents: Any) -> Any:
            scaled = iter([cotangents[0].astype(one.dtype) * one for one in grads])
            return tuple(next(scaled) if at in wanted else None for at in range(len(invars)))

        loss = jax.custom_vjp(lambda *operands: forward(*operands)[0])
        loss.defvjp(forward, backward)
        return list(loss(*inputs))

    return changed


def _whole(total: Any, kind: Metric | None, count: int) -> Any:
    """Return an output for the batch, of the sum of those for its parts."""
    if kind == "sum" or total.dtype == bool:
        return total
    return total / count if is_inexact(total) else total // count


# -- The edit --------------------------------------------------------------------------------------


def _edit(source: Source, change: Change) -> None:
    """Take the gradient of a call in microbatches.

    Raises:
        Refused: something of the batch may come from elsewhere.
    """
    (site,) = change.sites
    node = source.find(site)
    batch, count, devices = change.batch, change.count, change.devices
    if not isinstance(node, ast.Call) or node.keywords:
        raise Refused("it is not a call of a gradient without keywords")
    function = next(iter(source.scopes(node)), None)
    if not isinstance(function, ast.FunctionDef):
        raise Refused("it is in no function")
    _check_gradient(source, node.func)
    positions = []
    for at, argument in enumerate(node.args):
        root = _root(argument)
        if root is None or not _is_parameter(source, root):
            what = f"a parameter of {function.name} as passed"
            raise Refused(f"argument {at + 1} is not {what}, nor an item of one")
        if root.id in batch:
            if any(isinstance(one, ast.Attribute) for one in ast.walk(argument)):  # such as x.T
                raise Refused(f"argument {at + 1} may have the batch as another axis")
            positions.append(str(at))
    if not positions:
        raise Refused("no argument of the call has the batch")
    split = _SPLIT if devices == 1 else _SPLIT_SHARDED.replace("{devices}", str(devices))
    name = source.helper("microbatched", _HELPER.replace("{split}", split), node)
    comma = "," if len(positions) == 1 else ""
    source.wrap(node.func, f"{name}(", f", {count}, ({', '.join(positions)}{comma}))")


def _check_gradient(source: Source, node: ast.expr) -> None:
    """Refuse what is no gradient of a function that is defined outside.

    Raises:
        Refused: it is none.
    """
    bound_value = node
    if isinstance(node, ast.Name):
        bound = source.binding(node.id, node)
        if isinstance(bound, ast.Assign):
            bound_value = bound.value
    if not isinstance(bound_value, ast.Call) or source.dotted(bound_value.func) not in _GRADIENTS:
        raise Refused("what is called is not jax.grad(…) or jax.value_and_grad(…)")
    loss = bound_value.args[0] if bound_value.args else None
    bound = source.binding(loss.id, loss) if isinstance(loss, ast.Name) else None
    if not isinstance(bound, ast.FunctionDef) or bound not in source.tree.body:
        raise Refused("the loss is not a function of the module, so it may see the batch")


def _is_parameter(source: Source, name: ast.Name) -> bool:
    """Return whether a name is a parameter of the function around it, and not bound before."""
    around = list(source.above(name))
    function = next(iter(source.scopes(name)), None)
    if not isinstance(function, FUNCTIONS):
        return False
    inner = around[: around.index(function)]
    statement = next(one for one in inner if isinstance(one, ast.stmt))
    if any(isinstance(one, ast.For | ast.AsyncFor | ast.While) for one in inner):
        return False  # a later statement may have run before

    def is_later(one: ast.AST) -> bool:
        place = next(up for up in (one, *source.above(one)) if isinstance(up, ast.stmt))
        is_target = place is statement and not isinstance(source.parents[one], ast.NamedExpr)
        return is_target or place.lineno > (statement.end_lineno or 0)

    bound = source.bindings.get(function, {}).get(name.id, [])
    names = [one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)]
    if any(isinstance(one, ast.Nonlocal) and name.id in one.names for one in ast.walk(function)):
        return False  # a function within may have assigned it
    return name.id in names and all(is_later(one) for one in bound if not isinstance(one, ast.arg))


def _root(node: ast.expr) -> ast.Name | None:
    """Return the name that an expression is an item of, such as `batch` of `batch["x"]`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if not isinstance(key, str):  # x[0] would be an example
                return None
        node = node.value
    return node if isinstance(node, ast.Name) else None
