"""Which variable of the program holds an array, by the referrers of the garbage collector.

It runs in the user's process, also in a Python without bufdb's packages. A search goes from an
array to what refers to it, level by level, until a variable is met: of a module, of a function that
runs, or of a closure. Each level costs a scan of all objects, some 10 ms per 100,000 of them.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_LEVELS = 8
"""Containers between an array and the variable."""
_MOST = 200
"""Referrers of one array that are followed at a level."""
_OPTIMIZED = 1
"""Flag of the code of functions, whose locals are no dictionary."""
_LIBRARIES = (f"{Path(os.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}")
"""Python's own, and what watches: their variables only hold an array for a moment."""
Holder = tuple[str, str | None]
"""Name of a variable, with the file and line that first assign it."""


class _Variable(NamedTuple):
    name: str
    file: str
    scope: str | None
    """Function that has it; None for a module."""


def find(samples: list[list[Any]]) -> list[Holder | None]:
    """Return what holds most arrays of each sample; None if no variable is found."""
    arrays = [array for sample in samples for array in sample]
    held_by = _Search(arrays, [samples, *samples]).run()
    holders: list[Holder | None] = []
    for sample in samples:
        of = Counter(held_by[id(array)] for array in sample if id(array) in held_by)
        variable = of.most_common(1)[0][0] if of else None
        holders.append(None if variable is None else (variable.name, _source(variable)))
    return holders


class _Search:
    """A search from arrays to the variables that hold them."""

    def __init__(self, arrays: list[Any], own: list[Any]) -> None:
        self.arrays = arrays
        self.modules = {
            id(vars(one)): one
            for one in [*sys.modules.values()]
            if isinstance(one, types.ModuleType)
        }
        self.ignored = {id(one) for one in (*own, own, arrays)}

    def run(self) -> dict[int, _Variable]:
        """Return the variable of each array that has one, by its id."""
        locals_of_functions = _locals()
        open_: dict[int, list[Any]] = {id(array): [array] for array in self.arrays}
        seen = {number: {number} for number in open_}
        # A variable that is the array itself, such as the last loss, is soon another: what else
        # holds the array is its holder, if there is anything.
        direct: dict[int, _Variable] = {}
        variables: dict[int, _Variable] = {}
        for level in range(_LEVELS):
            of_level = variables if level else direct
            for number, objects in open_.items():
                names = (locals_of_functions.get(id(one)) for one in objects)
                if (variable := next(filter(None, names), None)) is not None:
                    of_level[number] = variable
            open_ = {number: some for number, some in open_.items() if number not in variables}
            if not open_:
                break
            open_ = self._above(open_, seen, of_level)
            open_ = {number: some for number, some in open_.items() if number not in variables}
        return direct | variables

    def _above(
        self,
        open_: dict[int, list[Any]],
        seen: dict[int, set[int]],
        variables: dict[int, _Variable],
    ) -> dict[int, list[Any]]:
        """Return what refers to the objects of each array; note those that variables hold."""
        objects = {id(one): one for some in open_.values() for one in some}
        own = {id(some) for some in open_.values()} | {id(objects), id(open_)}
        referrers = [
            one
            for one in gc.get_referrers(*objects.values())
            if id(one) not in self.ignored | own and not isinstance(one, types.FrameType)
        ]
        of: dict[int, list[Any]] = {}
        for one in referrers:
            for target in {id(held) for held in gc.get_referents(one)} & objects.keys():
                of.setdefault(target, []).append(one)
        closures = _closures([one for one in referrers if isinstance(one, types.CellType)])
        above: dict[int, list[Any]] = {}
        for number, held in open_.items():
            more = []
            for child in held:
                for one in of.get(id(child), ()):
                    if id(one) in seen[number]:
                        continue
                    variable = closures.get(id(one)) or self._variable(one, child)
                    if variable is not None:
                        variables.setdefault(number, variable)
                    seen[number].add(id(one))
                    # All functions of a module refer to its variables.
                    more += [] if id(one) in self.modules else [one]
            if more:
                above[number] = more[:_MOST]
        return above

    def _variable(self, holder: Any, held: Any) -> _Variable | None:
        """Return the variable of a module that an object is."""
        if isinstance(holder, dict) and id(holder) in self.modules:
            module = self.modules[id(holder)]
            file = getattr(module, "__file__", None) or f"<{module.__name__}>"
            names = (str(name) for name, value in [*holder.items()] if value is held)
            if (name := next(names, None)) is not None and not _is_library(file):
                return _Variable(name, file, None)
        return None


def _closures(cells: list[types.CellType]) -> dict[int, _Variable]:
    """Return the variables of closures that cells are of, by the ids of the cells."""
    if not cells:
        return {}
    closures = [one for one in gc.get_referrers(*cells) if isinstance(one, tuple)]
    functions: dict[int, list[types.FunctionType]] = {}
    for one in gc.get_referrers(*closures) if closures else ():
        if isinstance(one, types.FunctionType) and one.__closure__ is not None:
            functions.setdefault(id(one.__closure__), []).append(one)
    variables: dict[int, _Variable] = {}
    known = {id(cell) for cell in cells}
    for closure in closures:
        for function in functions.get(id(closure), ()):
            code = function.__code__
            if _is_library(code.co_filename):
                continue
            outer = function.__qualname__.rpartition(".<locals>.")[0].rpartition(".")[2]
            for name, cell in zip(code.co_freevars, closure, strict=True):
                if id(cell) in known:
                    of = _Variable(name, code.co_filename, outer or function.__name__)
                    variables.setdefault(id(cell), of)
    return variables


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in file or "dist-packages" in file


def _locals() -> dict[int, _Variable]:
    """Return the variables of functions that run, by the id of their values; inner ones win."""
    variables: dict[int, _Variable] = {}
    for frame in [*sys._current_frames().values()]:
        one: types.FrameType | None = frame
        while one is not None:
            code = one.f_code
            if code.co_flags & _OPTIMIZED and not _is_library(code.co_filename):
                values = one.f_locals
                for name, value in [*values.items()]:
                    variables.setdefault(id(value), _Variable(name, code.co_filename, code.co_name))
                value = None
                if sys.version_info < (3, 13):
                    # It is a copy that the frame keeps, and arrays with it.
                    with suppress(Exception):
                        values.clear()
            one = one.f_back
    # A frame that refers to itself would keep the arrays of its callers.
    del frame
    return variables


_trees: dict[str, ast.AST | None] = {}


def _source(variable: _Variable) -> str | None:
    """Return file and line of the first assignment of a variable."""
    if variable.file not in _trees:
        parsed: ast.AST | None = None
        with suppress(OSError, SyntaxError, ValueError):
            parsed = ast.parse(Path(variable.file).read_bytes())
        _trees[variable.file] = parsed
    tree = _trees[variable.file]
    if tree is None:
        return None
    lines = [line for name, scope, line in _assigned(tree, None) if (name, scope) == variable[::2]]
    return f"{variable.file}:{min(lines)}" if lines else None


def _assigned(node: ast.AST, scope: str | None) -> Iterator[tuple[str, str | None, int]]:
    """Yield the names that are assigned or are parameters, with their function and line."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = child.name
            yield child.name, scope, child.lineno
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, scope, child.lineno
        elif isinstance(child, ast.arg):
            yield child.arg, scope, child.lineno
        yield from _assigned(child, inner)
