"""Arguments of a call in the text of a program that the program has no use for after the call.

Invariant: an argument that is donated is one that the statement of the call binds again; the
program may read the buffer of any other later, which JAX refuses once it runs.
"""

from __future__ import annotations

import ast

from bufdb.fitting.edits import Refused
from bufdb.fitting.plans import Site
from bufdb.fitting.source import Source


def rebound(path: str, text: str, site: Site) -> frozenset[int]:
    """Return the numbers of the positional arguments that the statement of a call assigns.

    Such as 0 and 1 in `w, state = step(w, state, batch)`; none where the call is in another
    expression that reads them, too, as in `w = w - step(w, batch)`.

    Args:
        path: of the file.
        text: of the file.
        site: the call.
    """
    try:
        source = Source(path, text)
        call = source.find(site)
    except Refused:
        return frozenset()
    statement = next((node for node in source.above(call) if isinstance(node, ast.stmt)), None)
    if not isinstance(call, ast.Call) or not isinstance(statement, ast.Assign | ast.AnnAssign):
        return frozenset()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    assigned = {name for target in targets for name in _assigned(target)}
    numbers = set()
    for number, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            break
        name = ast.unparse(argument)
        if name in assigned and _reads(statement.value, name) == 1:
            numbers.add(number)
    return frozenset(numbers)


def _assigned(target: ast.expr) -> list[str]:
    """Return the expressions that a target assigns, as text."""
    if isinstance(target, ast.Tuple | ast.List):
        return [name for part in target.elts for name in _assigned(part)]
    return [ast.unparse(target)] if isinstance(target, ast.Name | ast.Attribute) else []


def _reads(value: ast.expr | None, name: str) -> int:
    nodes = () if value is None else ast.walk(value)
    return sum(isinstance(node, ast.expr) and ast.unparse(node) == name for node in nodes)
