"""Stretches of statements that a checkpoint can take as it takes a call.

That is the body of a loop, repeated statements, or one statement, of a function that a user wrote
out where another one has calls. A stretch becomes a function of the names that it reads, so it
holds nothing else that acts on what is around it: it assigns names alone, and calls no method that
changes a list or a dict, except one that takes an item out of it, which can be passed.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.fitting.edits import Refused
from bufdb.fitting.source import FUNCTIONS
from bufdb.fitting.statements import is_name, names_bound, names_read

CHANGING = (
    "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft",
    "remove", "setdefault", "sow", "update", "write",
)  # fmt: skip
"""Methods that change what they are called on."""
_CALLS = ("eval", "exec", "globals", "locals", "next", "vars")
"""Functions that see or change more than what they are passed."""
_FLOW = (
    ast.Await, ast.Break, ast.Continue, ast.Delete, ast.Global, ast.Import, ast.ImportFrom,
    ast.NamedExpr, ast.Nonlocal, ast.Raise, ast.Return, ast.Try, ast.TryStar, ast.While, ast.Yield,
    ast.YieldFrom, *FUNCTIONS, ast.ClassDef, ast.For, ast.AsyncFor, ast.AsyncWith, ast.Match,
)  # fmt: skip
"""What a function of its own cannot hold, or would hold otherwise."""
_UNSURE = (
    ast.Lambda, ast.IfExp, ast.BoolOp, ast.Compare,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""What may run a call in it never, or several times."""


@dataclass(frozen=True)
class Stretch:
    """Statements that follow each other, in a function with a `def`."""

    key: int
    """First line of the first one that is repeated like it."""
    first_line: int
    last_line: int
    column: int
    end_column: int
    reads: tuple[str, ...]
    """Names of the function that it reads before it assigns them, without those of `taken`."""
    writes: tuple[str, ...]
    """Names that it assigns and that are read after it; in a loop in the next iteration, too."""
    is_loop: bool
    """Whether it is in the body of a loop."""
    statements: tuple[ast.stmt, ...]
    taken: tuple[ast.Call, ...]
    """Calls such as `skips.pop()`, of a name that it has once, so that they can run before it."""


def stretches_of(file: str, first_line: int) -> tuple[Stretch, ...]:
    """Return those of the function whose `def`, or first decorator, is on a line of a file."""
    linecache.checkcache(file)
    try:
        tree = _tree("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    for node in _functions(tree):
        if min([node.lineno, *(one.lineno for one in node.decorator_list)]) == first_line:
            return tuple(_of_function(node))
    return ()


@functools.lru_cache(maxsize=16)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def stretch_at(tree: ast.Module, line: int, end_line: int) -> Stretch:
    """Return the stretch that has the lines from one to another.

    Raises:
        Refused: there is none.
    """
    for node in _functions(tree):
        if node.lineno < line and end_line <= (node.end_lineno or 0):
            for one in _of_function(node):
                if (one.first_line, one.last_line) == (line, end_line):
                    return one
    raise Refused("the statements there are others")


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


# -- One function ----------------------------------------------------------------------------------


Paths = Sequence[Sequence[ast.stmt]]
"""What may run next, by the ways that a program can take."""


def _of_function(node: ast.FunctionDef) -> Iterator[Stretch]:
    known = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    known |= {name for one in node.body for name in names_bound(one)}
    inner = [one for one in ast.walk(node) if isinstance(one, (*FUNCTIONS, ast.Lambda))]
    own = known - {name for one in inner if one is not node for name in names_read(one)}
    for run in _runs(node.body, own):
        repeats = _repeated(run)
        alone = [[one] for one in run if not any(one in group for group in repeats)]
        for group in (*repeats, *alone):
            key = repeats[0][0].lineno if group in repeats else group[0].lineno
            paths = _after(node.body, group[-1], ((),), is_loop=False)
            yield _stretch(group, known, paths, key, is_loop=False)
    for loop, beyond in _loops(node.body, ((),), is_loop=False):
        for run in _runs(loop.body, own):
            paths = _after(loop.body, run[-1], beyond, is_loop=True)
            yield _stretch(run, known, paths, run[0].lineno, is_loop=True)


def _after(block: Sequence[ast.stmt], last: ast.stmt, beyond: Paths, *, is_loop: bool) -> Paths:
    """Return what may run after a statement of a block, beyond which other statements run."""
    at = block.index(last) + 1
    paths = [[*block[at:], *path] for path in beyond]
    return [[*block[at:], *block[:at]], *paths] if is_loop else paths


def _loops(
    block: Sequence[ast.stmt], beyond: Paths, *, is_loop: bool
) -> Iterator[tuple[ast.For, Paths]]:
    """Yield the loops of a block, and those within them or a `with`, with what may run next."""
    for one in block:
        if isinstance(one, ast.For | ast.With):
            paths = _after(block, one, beyond, is_loop=is_loop)
            if isinstance(one, ast.For):
                yield one, paths
            yield from _loops(one.body, paths, is_loop=isinstance(one, ast.For))


def _runs(block: Sequence[ast.stmt], own: set[str]) -> list[list[ast.stmt]]:
    """Return the statements that a stretch may have, where they follow each other.

    Args:
        block: statements of a function.
        own: its names that no other function reads, which may change what they hold.
    """
    runs: list[list[ast.stmt]] = [[]]
    for one in block:
        taken = {_list_of(call) for call in takes(one)}
        if not is_plain(one) or not taken <= own:
            if runs[-1]:
                runs.append([])
            continue
        held = {_list_of(call) for other in runs[-1] for call in takes(other)}
        if held & _named(one) or any(taken & _named(other) for other in runs[-1]):
            runs.append([])
        runs[-1].append(one)
    return [run for run in runs if run]


def _named(statement: ast.stmt) -> set[str]:
    return names_read(statement) | names_bound(statement)


def takes(statement: ast.stmt) -> list[ast.Call]:
    """Return the calls in an assignment that take an item, each run once, of a name of its own."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return []
    names = Counter(one.id for one in ast.walk(statement) if isinstance(one, ast.Name))
    return [one for one in _run_once(statement.value) if names[_list_of(one)] == 1]


def _run_once(node: ast.AST | None) -> Iterator[ast.Call]:
    """Yield the calls of `pop` in a node that run whenever it does."""
    if node is None or isinstance(node, _UNSURE):
        return
    if isinstance(node, ast.Call) and _list_of(node):
        yield node
    for inner in ast.iter_child_nodes(node):
        yield from _run_once(inner)


def _list_of(call: ast.Call) -> str:
    """Return the name that a call takes an item of, the last one or that of a constant; or ''."""
    function, arguments = call.func, call.args
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return ""
    is_known = len(arguments) <= 1 and not call.keywords
    is_known &= all(isinstance(one, ast.Constant) for one in arguments)
    return function.value.id if function.attr == "pop" and is_known else ""


def item_of(call: ast.Call, values: Mapping[str, Any]) -> Any:
    """Return what a call would take out of what a name has now; `...` if that is not known.

    Nor is it if another name has the same list: lines may read it there after the call.
    """
    held: Any = values.get(_list_of(call))
    if type(held) not in (list, dict) or sum(_has(one, held) for one in values.values()) > 1:
        return ...
    at = ast.literal_eval(call.args[0]) if call.args else -1
    try:
        return held[at]
    except (LookupError, TypeError):
        return ...


def _has(value: Any, held: Any) -> bool:
    """Return whether a value is something, or has it among its items."""
    items = value.values() if isinstance(value, dict) else value
    is_open = isinstance(value, list | tuple | dict)
    return value is held or (is_open and any(one is held for one in items))


def is_plain(statement: ast.stmt) -> bool:
    """Return whether a statement only assigns names, and so do those in it."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.If | ast.With):
        return False
    taken = takes(statement)
    for node in ast.walk(statement):
        if isinstance(node, (*_FLOW, ast.Expr)):
            return False
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        if not all(map(is_name, targets)):
            return False
        if isinstance(node, ast.Call) and node not in taken:
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in CHANGING:
                return False
            if isinstance(function, ast.Name) and (
                function.id in _CALLS or (function.id == "super" and not node.args)
            ):
                return False
    return True


def _repeated(run: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Return the longest repetition of statements that differ in names and constants alone."""
    shapes = [_shape(one) for one in run]
    best: list[list[ast.stmt]] = []
    for period in range(1, len(run) // 2 + 1):
        at = 0
        while at + 2 * period <= len(run):
            end = at + period
            while end < len(run) and shapes[end] == shapes[end - period]:
                end += 1
            count = (end - at) // period
            if count > 1 and count * period > sum(map(len, best)):
                best = [list(run[at + k * period : at + (k + 1) * period]) for k in range(count)]
            at = max(at + 1, end - period + 1) if count > 1 else at + 1
    return best


def _shape(statement: ast.stmt) -> str:
    """Return the syntax of a statement without names and constants."""

    def of(node: ast.AST) -> str:
        if isinstance(node, ast.Name | ast.Constant):
            return "_"
        parts = []
        for _, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            parts += [of(one) if isinstance(one, ast.AST) else repr(one) for one in values]
        return f"{type(node).__name__}({','.join(parts)})"

    return of(statement)


def _stretch(
    statements: Sequence[ast.stmt], known: set[str], paths: Paths, key: int, *, is_loop: bool
) -> Stretch:
    first, last = statements[0], statements[-1]
    reads, sure = reads_of(statements, known)
    bound = {name for one in statements for name in names_bound(one)}
    # What is assigned in a branch alone keeps its value in the other.
    reads += sorted(bound - sure - set(reads))
    writes = {name for name in bound if any(_is_read(name, path) for path in paths)}
    taken = [call for one in statements for call in takes(one)]
    lists = set(map(_list_of, taken))
    return Stretch(
        key=key,
        first_line=first.lineno,
        last_line=last.end_lineno or last.lineno,
        column=first.col_offset,
        end_column=last.end_col_offset or 0,
        reads=tuple(name for name in reads if name not in lists),
        writes=tuple(sorted(writes)),
        is_loop=is_loop,
        statements=tuple(statements),
        taken=tuple(taken),
    )


def reads_of(statements: Iterable[ast.stmt], known: set[str]) -> tuple[list[str], set[str]]:
    """Return the names that are read before they are assigned, in order, and those assigned."""
    reads: dict[str, None] = {}
    sure: set[str] = set()
    for one in statements:
        parts: Sequence[ast.AST] = one.items if isinstance(one, ast.With) else [one]
        names = [name for part in parts for name in _loaded(part)]
        if isinstance(one, ast.With):
            sure |= {name for part in parts for name in names_bound(part)}
            inner, assigned = reads_of(one.body, known - sure)
            names += inner
            sure |= assigned
        elif isinstance(one, ast.AugAssign):
            names += names_bound(one.target)
        reads.update((name, None) for name in names if name in known - sure)
        if isinstance(one, ast.Assign | ast.AnnAssign):
            sure |= names_bound(one)
    return list(reads), sure


def _loaded(node: ast.AST) -> list[str]:
    """Return the names that are read in a node, in order."""
    names = (one for one in ast.walk(node) if isinstance(one, ast.Name))
    return [one.id for one in names if isinstance(one.ctx, ast.Load)]


def _is_read(name: str, statements: Sequence[ast.stmt]) -> bool:
    """Return whether some of the next statements reads a name before one assigns it."""
    for one in statements:
        reads, sure = reads_of([one], {name})
        if reads or name in sure:
            return bool(reads)
    return False
