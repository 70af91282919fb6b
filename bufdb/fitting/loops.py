"""The first of the calls that are made in one place, and the loop that makes them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

from bufdb.fitting.edits import Refused
from bufdb.fitting.plans import Site
from bufdb.fitting.source import FUNCTIONS, Source

_UNSURE = (
    ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.TryStar, ast.While, ast.AsyncFor,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""What may leave out a call in an iteration, or has iterations that are not counted."""


def first_calls(order: Sequence[Site], count: int) -> dict[Site, int | None]:
    """Return where the first calls are made, and how many of them; None for all of that place.

    Args:
        order: where each call is made, in order.
        count: how many calls.
    """
    total, first = Counter(order), Counter(order[:count])
    return {site: None if number == total[site] else number for site, number in first.items()}


def counter(source: Source, node: ast.AST) -> str:
    """Return the name of what counts the iterations of the loop around a node from 0.

    Raises:
        Refused: it is in no loop, in several, or not in each iteration.
    """
    loops: list[ast.For] = []
    for parent in source.above(node):
        if isinstance(parent, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(parent, _UNSURE):
            raise Refused("it is not known to be called once in each iteration of a loop")
        if isinstance(parent, ast.For):
            loops.append(parent)
    if len(loops) != 1:
        raise Refused("it is in several loops" if loops else "no loop of its function calls it")
    (loop,) = loops
    inner = [one for statement in loop.body for one in ast.walk(statement)]
    if node not in inner or any(isinstance(one, ast.Continue | ast.Break) for one in inner):
        raise Refused("it is not known to be called once in each iteration of a loop")
    known = _counting(source, loop)
    if known is not None and not any(_binds(one, known) for one in inner):
        return known
    name = source.free("fit_i")
    start, end = source.span(loop.target)
    is_open = isinstance(loop.target, ast.Tuple) and source.raw[start : start + 1] not in b"(["

    def targets(render: object) -> str:
        text = source.raw[start:end].decode()
        return f"{name}, ({text})" if is_open else f"{name}, {text}"

    source.replace((start, end), targets)
    source.wrap(loop.iter, "enumerate(", ")")
    return name


def _counting(source: Source, loop: ast.For) -> str | None:
    """Return the name that a loop counts its iterations by; None if it has none."""
    target, values = loop.target, loop.iter
    if not isinstance(values, ast.Call) or len(values.args) != 1 or values.keywords:
        return None
    if isinstance(values.args[0], ast.Starred) or not isinstance(values.func, ast.Name):
        return None
    name = values.func.id
    if source.binding(name, values) is not None:  # the user's own
        return None
    if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[0]
    elif name != "range":
        return None
    return target.id if isinstance(target, ast.Name) else None


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
