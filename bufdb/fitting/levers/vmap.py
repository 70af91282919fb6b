"""What `jax.vmap` computes for all at once, for some at a time: `jax.lax.map` in batches.

find     the user's outermost call of what vmap makes, with the size of the mapped axis
trace    nothing: products are the same; a plan is compiled from the patched files
edit     `jax.vmap(f)(xs)` becomes `jax.lax.map(f, xs, batch_size=k)`
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.jax_inside import Mapped
from bufdb.fitting.lever import Lever
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Site
from bufdb.fitting.source import Source
from bufdb.fitting.transforms import transform

PARTS = (2, 4, 8, 16, 32)
"""Into how many parts the axis is divided, in the order in which they are tried."""
_VMAP = ("jax.vmap",)


class Vmap(Lever):
    """A vmap in batches."""

    name = "vmap"

    def edit(self, editing: Editing) -> None:
        """Put `jax.lax.map` in the place of the vmap."""
        for change in editing.program.changes_of(editing.plan):
            if change.key.partition("=")[0] == self.name:
                editing.attempt(change.sites[0], change.step, _edit, change.sites[0], change.count)


def changes_of(mapped: Sequence[Mapped]) -> list[Change]:
    """Return the changes for the call with the largest arguments.

    Raises:
        Refused: there is none.
    """
    chosen = max(mapped, key=lambda one: (one.mapped_bytes, one.size), default=None)
    if chosen is None:
        raise Refused("no vmap of the user's files is called")
    if chosen.size < PARTS[0]:
        raise Refused(f"the vmap at {place(chosen.site)} is over {chosen.size}")
    return [_change(chosen, count) for count in PARTS if count <= chosen.size]


def _change(mapped: Mapped, parts: int) -> Change:
    count = -(-mapped.size // parts)
    where = place(mapped.site)
    return Change(
        f"{Vmap.name}={parts}",
        f"vmap at {where} for {count} of {mapped.size} at a time",
        f"call jax.lax.map(…, batch_size={count}) in place of jax.vmap in",
        where,
        f"each of the {mapped.size} is computed as before",
        (mapped.site,),
        count,
    )


def _edit(source: Source, site: Site, count: int) -> None:
    """Change a call of what `jax.vmap` makes into one of `jax.lax.map`.

    Raises:
        Refused: the call is not of a vmap over leading axes that is in sight.
    """
    node = source.find(site)
    if not isinstance(node, ast.Call):
        raise Refused("it is not a call")
    vmap = _made_by(source, node)
    axes = _axes(vmap, len(node.args))
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        raise Refused("it has arguments by name or by star")
    inside = [one for one, axis in zip(node.args, axes, strict=True) if axis is None]
    if any(isinstance(part, ast.Call | ast.NamedExpr) for one in inside for part in ast.walk(one)):
        raise Refused("an argument that is not mapped holds a call")
    mapped = [source.of(one) for one, axis in zip(node.args, axes, strict=True) if axis == 0]
    if not mapped:
        raise Refused("it maps no argument")
    jax = source.imported("jax", "", [node])
    function = source.of(vmap.args[0])
    if len(node.args) > 1:
        name = source.free("fit_x")
        items = iter(range(len(mapped)))
        several = len(mapped) > 1
        arguments = [
            source.of(one) if axis is None else f"{name}[{next(items)}]" if several else name
            for one, axis in zip(node.args, axes, strict=True)
        ]
        is_plain = isinstance(vmap.args[0], ast.Name | ast.Attribute)
        called = function if is_plain else f"({function})"
        function = f"lambda {name}: {called}({', '.join(arguments)})"
    values = f"({', '.join(mapped)})" if len(mapped) > 1 else mapped[0]
    text = f"{jax}.lax.map({function}, {values}, batch_size={count})"
    source.replace(source.span(node), lambda render: text)


def _made_by(source: Source, node: ast.Call) -> ast.Call:
    """Return the call of `jax.vmap` whose result a call runs."""
    made = node.func
    if isinstance(made, ast.Name):
        bound = source.binding(made.id, made)
        if not isinstance(bound, ast.Assign):
            raise Refused(f"{made.id} is not jax.vmap(…) of the file")
        made = bound.value
        names = [one for one in ast.walk(made) if isinstance(one, ast.Name)]
        if any(source.binding(one.id, one) is not source.binding(one.id, node) for one in names):
            raise Refused("the function of the vmap is not in sight of the call")
    vmap = transform(source, made, _VMAP)
    if vmap is None or not vmap.args or source.dotted(vmap.func) not in _VMAP:
        raise Refused("what is called is not jax.vmap(…)")
    if isinstance(vmap.args[0], ast.Starred):
        raise Refused("the function of the vmap comes from a star")
    return vmap


def _axes(vmap: ast.Call, count: int) -> list[int | None]:
    """Return the mapped axis of each argument of a vmap, 0 or None.

    Raises:
        Refused: it is another axis, or the vmap has other options.
    """
    others = {one.arg for one in vmap.keywords} - {"in_axes", "out_axes"}
    named = {one.arg: one.value for one in vmap.keywords}
    if others or len(vmap.args) > 3:
        raise Refused("the vmap has options that jax.lax.map lacks")
    inputs = vmap.args[1] if len(vmap.args) > 1 else named.get("in_axes")
    outputs = vmap.args[2] if len(vmap.args) > 2 else named.get("out_axes")
    try:
        axes = 0 if inputs is None else ast.literal_eval(inputs)
        results = 0 if outputs is None else ast.literal_eval(outputs)
    except ValueError as error:
        raise Refused("its axes are not constants") from error
    each = list(axes) if isinstance(axes, tuple | list) else [axes] * count
    if results != 0 or len(each) != count or any(one not in (0, None) for one in each):
        raise Refused("it maps other axes than the leading ones")
    return each
