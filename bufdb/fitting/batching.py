"""The edit that takes a gradient in microbatches: `microbatched(GRADIENT, 4, (1, 2))(…)`.

It is made where the gradient has the batch from nothing else than arguments of its call, which are
parameters of the user's function, or items of them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from bufdb.fitting.edits import Refused
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


def in_microbatches(
    source: Source, node: ast.AST, count: int, batch: Sequence[str], devices: int = 1
) -> None:
    """Take the gradient of a call in microbatches.

    Args:
        source: where it is.
        node: the call.
        count: of parts.
        batch: names of the parameters of the function around it that have the batch.
        devices: over how many the batch is sharded.

    Raises:
        Refused: something of the batch may come from elsewhere.
    """
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
    outer = next(one for one in [*source.above(node)][::-1] if one in source.tree.body)
    assert isinstance(outer, ast.stmt)
    jax = source.imported("jax", "", [node, source.tree.body[0]])
    name = source.free("microbatched")
    first = min([outer.lineno, *(one.lineno for one in getattr(outer, "decorator_list", []))])
    split = _SPLIT if devices == 1 else _SPLIT_SHARDED.format(devices=devices)
    helper = _HELPER.format(name=name, jax=jax, split=split).rstrip("\n").split("\n")
    source.insert_line(first, source.line_end.join([*helper, "", ""]))
    comma = "," if len(positions) == 1 else ""
    source.wrap(node.func, f"{name}(", f", {count}, ({', '.join(positions)}{comma}))")


def _check_gradient(source: Source, node: ast.expr) -> None:
    """Refuse what is no gradient of a function that is defined outside.

    Raises:
        Refused: it is none.
    """
    found = node
    if isinstance(node, ast.Name):
        bound = source.binding(node.id, node)
        if isinstance(bound, ast.Assign):
            found = bound.value
    if not isinstance(found, ast.Call) or source.dotted(found.func) not in _GRADIENTS:
        raise Refused("what is called is not jax.grad(…) or jax.value_and_grad(…)")
    loss = found.args[0] if found.args else None
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
