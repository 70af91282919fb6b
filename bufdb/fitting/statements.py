"""Statements of a file: which of them have some nodes, the names of these, and their text."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.source import FUNCTIONS, Source

UNIT = "    "
Replaced = tuple[ast.expr, str]
"""An expression, and what is in its place."""
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


# -- The text of statements ------------------------------------------------------------------------


class Lines:
    """Whole lines of statements, with the comments above each."""

    def __init__(self, source: Source, statements: Sequence[ast.stmt]) -> None:
        self._source = source
        self._spans: dict[ast.stmt, tuple[int, int]] = {}
        begin = statements[0].lineno
        for one in statements:
            last = one.end_lineno or one.lineno
            end = source.end_of_line(last)
            self._spans[one] = source.offset(begin, 0), end
            begin = last + 1
        self.start = source.offset(statements[0].lineno, 0)
        self.end = self._spans[statements[-1]][1]

    def text(self, one: ast.stmt, render: Render, replaced: Sequence[Replaced]) -> str:
        """Return the text of one of them with some expressions replaced."""
        return rendered(render, self._spans[one], self._source, replaced)


def rendered(
    render: Render, span: tuple[int, int], source: Source, replaced: Sequence[Replaced]
) -> str:
    """Return the text of a span with some expressions replaced; of those that nest the outer."""
    at, end = span
    pieces = []
    spans = sorted((_around(source, node), name) for node, name in replaced)
    for (first, last), name in sorted(spans, key=lambda one: (one[0][0], -one[0][1])):
        if first >= at and last <= end:
            pieces += [render(at, first), name]
            at = last
    return "".join([*pieces, render(at, end)])


def _around(source: Source, node: ast.expr) -> tuple[int, int]:
    """Return the span of an expression, with the parentheses that it alone needs."""
    start, end = source.span(node)
    around = source.raw[start - 1 : start], source.raw[end : end + 1]
    is_grouped = isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare)
    is_called = bool(re.match(rb"[\w\])]", source.raw[start - 2 : start - 1]))
    return (
        (start - 1, end + 1)
        if around == (b"(", b")") and is_grouped and not is_called
        else (start, end)
    )


def indented(text: str) -> str:
    """Return lines that are one level further in."""
    return "\n".join(f"{UNIT}{line}" if line.strip() else line for line in text.split("\n"))


def flat(text: str) -> str:
    """Return an expression on one line; with a comment, in parentheses, which a `return` needs."""
    if "#" in text:
        return f"({text})" if "\n" in text else text
    flat = ""
    for line in (one.strip() for one in text.split("\n")):
        is_close = not flat or flat[-1] in "([{" or line[:1] in ")]}."
        flat += line if is_close else f" {line}"
    return flat


def check_lines(source: Source, statements: Sequence[ast.stmt], space: str) -> None:
    """Refuse statements that share lines, or have texts over several lines.

    Raises:
        Refused: they do.
    """
    if space.strip():
        raise Refused("several statements are on one line")
    for one, other in itertools.pairwise(statements):
        if one.end_lineno == other.lineno:
            raise Refused("several statements are on one line")
    for one in statements:
        for node in ast.walk(one):
            is_text = isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            if is_text and getattr(node, "lineno", 0) != getattr(node, "end_lineno", 0):
                raise Refused("a text over several lines is between its lines")


# -- Nodes -----------------------------------------------------------------------------------------


def block_of(
    source: Source, members: Sequence[ast.AST]
) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.stmt]]:
    """Return the function that has some nodes, and the innermost block in it that has all.

    Raises:
        Refused: they are in no function, or in a loop of it.
    """
    above = [[node, *source.above(node)] for node in members]
    functions = [next((one for one in some if isinstance(one, _SCOPES)), None) for some in above]
    function = functions[0]
    if not isinstance(function, ast.FunctionDef) or any(one is not function for one in functions):
        raise Refused("its lines are not in one function with a def")
    body, outer = function.body, above
    while True:
        here = {next(one for one in some if one in body) for some in outer}
        if len(here) > 1:
            return function, body
        (only,) = here
        if not isinstance(only, ast.With | ast.If | ast.For | ast.While | ast.Try):
            return function, body
        if isinstance(only, ast.For | ast.While | ast.Try):
            raise Refused("its lines are in a loop, or in a try")
        blocks = [only.body, getattr(only, "orelse", [])]
        inner = [one for one in blocks if all(any(s in one for s in some) for some in outer)]
        if not inner:
            raise Refused("its lines are in several blocks")
        body = inner[0]


def range_of(
    source: Source, block: Sequence[ast.stmt], members: Sequence[ast.AST]
) -> tuple[int, int]:
    """Return the first and the last statement of a block that has some of the nodes."""
    known = set(block)
    places = [
        block.index(one)
        for node in members
        for one in (node, *source.above(node))
        if one in known and isinstance(one, ast.stmt)
    ]
    return min(places), max(places)


def inside_of(above: Sequence[ast.AST], block: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes around an expression that are in a statement of a block."""
    for one in above:
        if one in block:
            return
        yield one


def names_read(node: ast.AST) -> set[str]:
    """Return the names that are read in a node."""
    return {
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }


def names_bound(statement: ast.AST) -> set[str]:
    """Return the names that a statement binds, those in functions within it, too."""
    bound = {
        one.id
        for one in ast.walk(statement)
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
    }
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        bound.add(statement.name)
    return bound


def is_name(target: ast.expr) -> bool:
    """Return whether an assignment is to names alone."""
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Tuple) and all(isinstance(one, ast.Name) for one in target.elts)
    )


def word_of(text: str) -> str:
    """Return a name for an item, such as `labels` of `batch['labels']`."""
    words = re.findall(r"\w+", text)
    return next((word for word in words[::-1] if word.isidentifier()), "part")


def excerpt(source: Source, node: ast.AST) -> str:
    """Return the text of a node for a message, on one line."""
    assert isinstance(node, ast.expr | ast.stmt)
    text = " ".join(source.of(node).split())
    return text if len(text) <= 40 else f"{text[:39]}…"
