"""Arguments of a call in the text of a program that the program has no use for after the call.

Invariant: an argument that is donated is one that the statement of the call binds again; the
program may read the buffer of any other later, which JAX refuses once it runs.
"""

from __future__ import annotations

import ast

from bufdb.fitting.edits import Refused
from bufdb.fitting.plans import Site
from bufdb.fitting.source import Source

_MAKERS = ("array", "zeros", "ones", "full", "arange", "linspace", "eye")
"""Functions of `jax.numpy` that return a new array, without `copy=False`."""
_VIEWS = ("key_data", "wrap_key_data", "clone")
"""Functions of `jax.random` that return the buffer of their argument."""


def rebound(path: str, text: str, site: Site, count: int) -> frozenset[int]:
    """Return the numbers of the positional arguments that the statement of a call assigns.

    Such as 0 and 1 in `w, state = step(w, state, batch)`; none where the call is in another
    expression that reads them, too, as in `w = w - step(w, batch)`.

    Args:
        path: of the file.
        text: of the file.
        site: the call.
        count: of the positional arguments that the function got: a method's instance, and what a
            partial has, are not in the call's text.
    """
    source, call = _call(path, text, site)
    if call is None or source is None:
        return frozenset()
    statement = next((node for node in source.above(call) if isinstance(node, ast.stmt)), None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return frozenset()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    assigned = {name for target in targets for name in _assigned(target)}
    return frozenset(
        number
        for number, argument in _numbered(call, count)
        if (name := ast.unparse(argument)) in assigned and _reads(statement.value, name) == 1
    )


def made(path: str, text: str, site: Site, count: int) -> frozenset[int]:
    """Return the numbers of the arguments that are arrays made in the call's text.

    Such as 1 in `step(w, jnp.ones((8, 2)))`. The arguments are those of `rebound`.
    """
    source, call = _call(path, text, site)
    if call is None or source is None:
        return frozenset()
    return frozenset(
        number
        for number, argument in _numbered(call, count)
        if isinstance(argument, ast.Call) and _is_made(source, argument)
    )


def _is_made(source: Source, call: ast.Call) -> bool:
    module, _, name = source.dotted(call.func).rpartition(".")
    if module == "jax.numpy":
        return name in _MAKERS and all(one.arg not in ("copy", None) for one in call.keywords)
    return module == "jax.random" and name not in _VIEWS


def _call(path: str, text: str, site: Site) -> tuple[Source | None, ast.Call | None]:
    try:
        source = Source(path, text)
        call = source.find(site)
    except Refused:
        return None, None
    return source, call if isinstance(call, ast.Call) else None


def _numbered(call: ast.Call, count: int) -> list[tuple[int, ast.expr]]:
    """Return the arguments of a call that are not in a star, with their numbers."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return []
    return [*enumerate(call.args, count - len(call.args))]


def _assigned(target: ast.expr) -> list[str]:
    """Return the expressions that a target assigns, as text."""
    if isinstance(target, ast.Tuple | ast.List):
        return [name for part in target.elts for name in _assigned(part)]
    return [ast.unparse(target)] if isinstance(target, ast.Name | ast.Attribute) else []


def _reads(value: ast.expr | None, name: str) -> int:
    nodes = () if value is None else ast.walk(value)
    return sum(isinstance(node, ast.expr) and ast.unparse(node) == name for node in nodes)
