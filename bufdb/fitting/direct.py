"""A call as a maintainer checkpoints it: `jax.checkpoint(block)(p, x)`.

Invariant: each argument is known to be arrays in every call that was traced, or a value that can be
hashed, which stays a value of Python; where one is neither, the call stays whole in a lambda.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.plans import Region, Site
from bufdb.fitting.source import Source
from bufdb.fitting.transforms import function_at, whole


@dataclass(frozen=True)
class Direct:
    """A call whose function is checkpointed, with which of its arguments are no arrays."""

    node: ast.Call
    numbers: tuple[int, ...]
    """Places of positional arguments that are values of Python."""
    bound: tuple[ast.keyword, ...]
    """Keyword arguments that are, for a partial."""
    partial: str
    """How the file names `functools.partial`; '' if it is not needed."""

    def render(
        self, source: Source, checkpoint: str, policy: str, test: str, render: Render
    ) -> str:
        """Return the new text of the call.

        Args:
            source: the file.
            checkpoint: how the file names the transform.
            policy: options of it, with a comma in front.
            test: when it is checkpointed; '' for always.
            render: renders spans of the file.
        """
        function = render(*source.span(self.node.func))
        if self.bound:
            values = ", ".join(render(*whole(source, one)) for one in self.bound)
            function = f"{self.partial}({function}, {values})"
        if self.numbers:
            comma = "," if len(self.numbers) == 1 else ""
            policy = f", static_argnums=({', '.join(map(str, self.numbers))}{comma}){policy}"
        head = f"{checkpoint}({function}{policy})"
        if test:
            head = f"({head} if {test} else {function})"
        if not self.bound:
            return head + render(source.span(self.node.func)[1], source.span(self.node)[1])
        kept: list[ast.expr | ast.keyword] = [*self.node.args]
        kept += [one for one in self.node.keywords if one not in self.bound]
        return f"{head}({', '.join(render(*whole(source, one)) for one in kept)})"


def direct(source: Source, node: ast.Call, region: Region, site: Site) -> Direct | None:
    """Return a call of a region in that form; None if it cannot have it."""
    is_starred = any(isinstance(one, ast.Starred) for one in node.args)
    if is_starred or any(one.arg is None for one in node.keywords) or region.lift:
        return None
    if not isinstance(node.func, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        return None
    names = _names(source, node, region)
    if names is None or len(node.args) > len(names):
        return None
    passed = [*names[: len(node.args)], *(one.arg or "" for one in node.keywords)]
    if not _is_enough(source, region, site, names, passed):
        return None
    filtered = region.owner == "equinox"  # it takes what is no array apart by itself
    statics = [name for name in passed if not filtered and name not in region.arrays]
    if not set(statics) <= set(region.statics):
        return None
    numbers = tuple(at for at in range(len(node.args)) if passed[at] in statics)
    bound = tuple(one for one in node.keywords if one.arg in statics)
    return Direct(
        node, numbers, bound, source.imported("functools", "partial", [node]) if bound else ""
    )


def _names(source: Source, node: ast.Call, region: Region) -> Sequence[str] | None:
    """Return the names of the parameters that a call passes; None if they are not known.

    Those of a method are without the object, whose hash a checkpoint needs, as that of a function.
    """
    *_, owner, name = ["", *region.function.split(".")]
    if not owner or owner == "<locals>":
        return region.parameters
    is_named = isinstance(node.func, ast.Attribute) and node.func.attr == name
    if is_named and isinstance(node.func, ast.Attribute):
        value = node.func.value
        bound = source.binding(value.id, value) if isinstance(value, ast.Name) else None
        if isinstance(bound, ast.ClassDef):
            return region.parameters
    elif name != "__call__":
        return None
    is_hashed = region.owner == "equinox" or region.parameters[:1] == region.statics[:1]
    return region.parameters[1:] if is_hashed else None


def _is_enough(
    source: Source, region: Region, site: Site, names: Sequence[str], passed: Sequence[str]
) -> bool:
    """Return whether a call passes every parameter that has no default.

    Where it does not, what it calls is not the function itself but a partial of it.
    """
    missing = [name for name in names if name not in passed]
    if not missing:
        return True
    if region.defined is None or region.defined.file != site.file:
        return False
    with suppress(Refused):
        arguments = function_at(source, region.defined).args
        positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        defaults = positional[len(positional) - len(arguments.defaults) :]
        return set(missing) <= set(defaults)
    return False
