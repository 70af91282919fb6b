"""Put lines into a function of one part of an axis, and call it for one part at a time.

scores = q @ k.mT                   def part(q, k, v):
weights = softmax(scores)    →          scores = q @ k.mT
x = x + weights @ v                     weights = softmax(scores)
return weights @ v

x = x + in_parts(part, 8, (1, 1, 1), 1, q, k, v)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.plans import Parts, Site
from bufdb.fitting.source import FUNCTIONS, Source
from bufdb.fitting.statements import UNIT, Lines, check_lines, indented, names_bound
from bufdb.fitting.stretches import is_plain, reads_of

_HELPER = '''\
def {name}(f, count, axes, axis, *arrays):
    """Return f of arrays, of one of `count` equal parts of an axis of each at a time.

    The result has the parts along `axis`.
    """

    def split(x, axis):
        parts = x.reshape(*x.shape[:axis], count, -1, *x.shape[axis + 1 :])
        return {jax}.numpy.moveaxis(parts, axis, 0)

    f = {jax}.checkpoint(f, prevent_cse=False)
    parts = [split(x, at) for x, at in zip(arrays, axes)]
    y = {jax}.lax.map(lambda part: f(*part), parts)
    y = {jax}.numpy.moveaxis(y, 0, axis)
    return y.reshape(*y.shape[:axis], -1, *y.shape[axis + 2 :])


'''
MAPPED = re.compile(r"^in_parts_*\.<locals>\.<lambda>$")
"""Name of the function of the helper in which that of a part runs."""
_OF_NUMBERS = ("exp", "finfo", "float16", "float32", "iinfo", "log", "log2", "prod", "sqrt")
"""What NumPy computes of numbers alone."""
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Passage:
    """Statements of a function, and an expression of the next one that is computed of them."""

    statements: tuple[ast.stmt, ...]
    """Without that of the expression."""
    owner: ast.stmt
    """The statement of the expression."""
    result: ast.expr
    reads: tuple[str, ...]
    """Names of the function that are read before they are assigned, in order."""
    bound: frozenset[str]
    """Names that the statements assign."""

    @property
    def line(self) -> int:
        """Return the first line."""
        return (*self.statements, self.owner)[0].lineno

    def has(self, site: Site) -> bool:
        """Return whether an expression is in it."""
        begin, end = (site.line, site.column), (site.end_line, site.end_column)
        nodes: tuple[ast.stmt | ast.expr, ...] = (*self.statements, self.result)
        for one in nodes:
            last = one.end_lineno or one.lineno, one.end_col_offset or 0
            if (one.lineno, one.col_offset) <= begin and end <= last:
                return True
        return False


def passage(source: Source, first: Site, last: Site) -> Passage:
    """Return the statements from one expression to another one.

    Raises:
        Refused: they are no function of the names that they read.
    """
    begin, result = source.find(first), source.find(last)
    if isinstance(result, ast.AugAssign):
        raise Refused("its last line assigns to what it reads")
    block = _block(source, begin, result)
    above = [[node, *source.above(node)] for node in (begin, result)]
    at, end = (next(at for at, one in enumerate(block) if one in some) for some in above)
    if at == end and result not in above[0]:
        raise Refused("its lines are in several expressions of one statement")
    statements = block[at:end]
    if not all(map(is_plain, statements)):
        raise Refused("a line between does more than assign names")
    _require_no_arrays(source, [*statements, result])
    function = source.scopes(result)[0]
    bound = {name for one in statements for name in _assigned(one)}
    owner, loops = block[end], [one for one in above[1] if isinstance(one, ast.For | ast.While)]
    while _reads(owner, bound, {*ast.walk(result)}):  # such as a division by the sum of a row
        parent = source.parents[result]
        if not isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Call | ast.Attribute):
            break
        result = parent
    if any(isinstance(one, ast.NamedExpr | ast.Await | ast.Yield) for one in ast.walk(result)):
        raise Refused("its last expression assigns, awaits or yields")
    inside = {node for one in (*statements, result) for node in ast.walk(one)}
    for node in _reads(function, bound, inside):
        is_later = node.lineno >= block[at].lineno
        if is_later or any(one in loops for one in source.above(node)):
            raise Refused(f"{node.id} is read after its lines")
    every = [*statements, ast.Expr(result)]
    reads, sure = reads_of(every, set(source.bindings.get(function, {})))
    reads += sorted(bound - sure - set(reads))
    places = {node.id: (node.lineno, node.col_offset) for node in _names(every)}
    reads.sort(key=lambda name: places.get(name, (0, 0)))
    return Passage(tuple(statements), owner, result, tuple(reads), frozenset(bound))


def _require_no_arrays(source: Source, nodes: Sequence[ast.AST]) -> None:
    """Refuse lines in which NumPy makes an array, as no equation shows its size.

    Raises:
        Refused: it does.
    """
    for node in (one for some in nodes for one in ast.walk(some)):
        path = source.dotted(node.func) if isinstance(node, ast.Call) else ""
        if path.startswith("numpy.") and path.removeprefix("numpy.") not in _OF_NUMBERS:
            raise Refused(f"{path} makes an array in its lines: make it before them")


def _reads(node: ast.AST, names: set[str], inside: set[ast.AST]) -> list[ast.Name]:
    """Return where some names are read, or deleted, in a node and not inside."""
    every = (one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in names)
    return [one for one in every if not isinstance(one.ctx, ast.Store) and one not in inside]


def _names(statements: Sequence[ast.stmt]) -> list[ast.Name]:
    """Return the names in some statements, the first one last."""
    every = [one for some in statements for one in ast.walk(some) if isinstance(one, ast.Name)]
    return sorted(every, key=lambda one: (one.lineno, one.col_offset), reverse=True)


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, without those of comprehensions in it."""
    own = {
        one.id
        for node in ast.walk(statement)
        if isinstance(node, ast.comprehension)
        for one in ast.walk(node.target)
        if isinstance(one, ast.Name)
    }
    return names_bound(statement) - own


def _block(source: Source, begin: ast.AST, result: ast.AST) -> list[ast.stmt]:
    """Return the innermost block that has two nodes of a function.

    Raises:
        Refused: there is none.
    """
    scopes = [
        next((one for one in source.above(node) if isinstance(one, _SCOPES)), None)
        for node in (begin, result)
    ]
    if scopes[0] is not scopes[1] or not isinstance(scopes[0], ast.FunctionDef):
        raise Refused("its lines are not in one function with a def")
    others = {result, *source.above(result)}
    for parent in source.above(begin):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and others & {*block} and _holds(source, block, begin):
                return block
        if parent is scopes[0]:
            break
    raise Refused("its lines are in several blocks")


def _holds(source: Source, block: Sequence[ast.stmt], node: ast.AST) -> bool:
    return any(one in block for one in (node, *source.above(node)))


def put_in_parts(source: Source, parts: Parts) -> None:
    """Compute some lines for one part of an axis at a time.

    Raises:
        Refused: the text does not show how.
    """
    one = passage(source, parts.first, parts.last)
    axes = dict(parts.axes)
    arrays = [name for name in one.reads if name in axes]
    kept = [f"{name}={name}" for name in one.reads if name in one.bound and name not in axes]
    if len(arrays) < len(axes):
        raise Refused("a name with the axis is not read there")
    helper = source.helper("in_parts", _HELPER, one.result)
    name = source.new("part")
    lines = Lines(source, [*one.statements, one.owner])
    space = source.raw[lines.start : source.span((*one.statements, one.owner)[0])[0]].decode()
    check_lines(source, [*one.statements, one.owner], space)
    places = ", ".join(str(axes[array]) for array in arrays) + ("," if len(arrays) == 1 else "")
    call = f"{helper}({name}, {parts.count}, ({places}), {parts.axis}, {', '.join(arrays)})"

    before = source.raw[: lines.start].rstrip(b" ").splitlines()
    has_lines_above = bool(before and before[-1].strip()) and not before[-1].endswith(b":")
    span = source.span(one.result)
    inner: list[str] = []

    def in_place(render: Render) -> str:
        inner.append(render(*span))
        return call

    # What is around the expression, such as its name for a policy, stays there.
    is_wrapped = any((edit.start, edit.end) == span for edit in source.edits)
    if is_wrapped:
        source.replace(span, in_place, rank=2)

    def make(render: Render) -> str:
        body = [lines.text(statement, render, ()) for statement in one.statements]
        owner = lines.text(one.owner, render, () if is_wrapped else [(one.result, call)])
        result = inner[-1] if is_wrapped else render(*span)
        texts = [
            *([""] if has_lines_above else []),
            f"{space}def {name}({', '.join([*arrays, *kept])}):",
            *map(indented, body),
            f"{space}{UNIT}return {_on_line(result)}",
            "",
            owner,
        ]
        return source.line_end.join(texts)

    source.replace((lines.start, lines.end), make, rank=1)


def _on_line(text: str) -> str:
    """Return an expression as `return` takes it."""
    try:
        ast.parse(text)
    except SyntaxError:
        return f"({text})"
    return text
