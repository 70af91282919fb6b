"""Source text of one file: nodes at positions, names as dotted paths, and what is imported."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator

from bufdb.fitting.edits import Edits, Refused
from bufdb.fitting.plans import Site

BOM = "\ufeff"
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.Module, *FUNCTIONS, ast.ClassDef, ast.Lambda)


class _Syntax:
    """The syntax tree of a text, which no edit changes: plans of a program share it."""

    def __init__(self, text: str) -> None:
        # As text: what a file says of its encoding has been obeyed already.
        self.tree = ast.parse(text)
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    @functools.cached_property
    def by_end(self) -> dict[tuple[int | None, int | None], list[ast.expr | ast.AugAssign]]:
        by_end: dict[tuple[int | None, int | None], list[ast.expr | ast.AugAssign]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr | ast.AugAssign):
                by_end.setdefault((node.end_lineno, node.end_col_offset), []).append(node)
        return by_end

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Return the nodes around a node, inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scopes(self, node: ast.AST) -> list[Scope]:
        """Return the scopes in which a name of a node is looked up, inside out."""
        scopes: list[Scope] = []
        inner = node
        for parent in self.above(node):
            is_body = not (
                isinstance(parent, (*FUNCTIONS, ast.ClassDef))
                and (inner in parent.decorator_list or inner is getattr(parent, "args", None))
            )
            inner = parent
            if isinstance(parent, _SCOPES) and is_body:
                # Functions do not see the names of the class around them.
                if isinstance(parent, ast.ClassDef) and scopes:
                    continue
                scopes.append(parent)
        return scopes

    @functools.cached_property
    def bindings(self) -> dict[Scope, dict[str, list[ast.AST]]]:
        """By scope and name, what binds the name."""
        bindings: dict[Scope, dict[str, list[ast.AST]]] = {}

        def bind(node: ast.AST, name: str, value: ast.AST) -> None:
            scope = next(iter(self.scopes(node)), self.tree)
            bindings.setdefault(scope, {}).setdefault(name, []).append(value)

        for node in ast.walk(self.tree):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                bind(node, node.name, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    bind(node, alias.asname or alias.name.partition(".")[0], node)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                parent = self.parents[node]
                is_plain = isinstance(parent, ast.Assign) and parent.targets == [node]
                bind(node, node.id, parent if is_plain else node)
            elif isinstance(node, ast.arg):
                bind(node, node.arg, node)
                function = self.parents[self.parents[node]]
                if isinstance(function, (*FUNCTIONS, ast.Lambda)):
                    bindings.setdefault(function, {}).setdefault(node.arg, []).append(node)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                bind(node, node.name, node)
        return bindings


@functools.lru_cache(maxsize=16)
def _syntax(text: str) -> _Syntax:
    return _Syntax(text)


class Source(Edits):
    """A file as its syntax tree, and the edits that are to be made."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text.removeprefix(BOM))
        self._head = BOM if text.startswith(BOM) else ""
        self.imports: list[str] = []
        self._helpers: dict[str, str] = {}
        """Names of functions that are put into it, by their text."""
        self._new: set[str] = set()
        try:
            self._syntax = _syntax(text.removeprefix(BOM))
        except (SyntaxError, ValueError) as error:
            raise Refused(f"{path} is no Python that this version parses") from error
        self.tree, self.parents = self._syntax.tree, self._syntax.parents
        self.above, self.scopes = self._syntax.above, self._syntax.scopes
        self.bindings = self._syntax.bindings

    # -- places ------------------------------------------------------------------------------------

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets in bytes of the start and the end of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def find(self, site: Site) -> ast.expr | ast.AugAssign:
        """Return the expression at a site, or the augmented assignment.

        Raises:
            Refused: there is none, or its position is not reliable.
        """
        nodes = self._syntax.by_end.get((site.end_line, site.end_column), [])
        exact = [node for node in nodes if (node.lineno, node.col_offset) == site[1:3]]
        # A method call over several lines starts at the method's name (CPython 3.11 and later).
        called = [node for node in nodes if self._method_start(node) == site[1:3]]
        expression = exact or called
        if not expression:
            raise Refused("no expression of the file is at this position")
        node = expression[0]
        if sys.version_info < (3, 12) and any(
            isinstance(parent, ast.JoinedStr) for parent in self.above(node)
        ):
            raise Refused("it is inside an f-string, where Python 3.11 gives no exact positions")
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            raise Refused("it is the target of an assignment")
        return node

    def _method_start(self, node: ast.AST) -> tuple[int, int] | None:
        function = node.func if isinstance(node, ast.Call) else None
        if not isinstance(function, ast.Attribute) or function.lineno == function.end_lineno:
            return None
        assert function.end_lineno is not None
        assert function.end_col_offset is not None
        return function.end_lineno, function.end_col_offset - len(function.attr.encode())

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class around a node."""
        return next((one for one in self.above(node) if isinstance(one, ast.ClassDef)), None)

    # -- names -------------------------------------------------------------------------------------

    def binding(self, name: str, at: ast.AST) -> ast.AST | None:
        """Return what binds a name as it is seen at a node; None if unknown, or one of several."""
        for scope in self.scopes(at):
            nodes = self.bindings.get(scope, {}).get(name)
            if nodes:
                return nodes[0] if len(nodes) == 1 else None
        return None

    def dotted(self, node: ast.AST, depth: int = 0) -> str:
        """Return the dotted path of what an expression names, such as `jax.lax.scan`, else ''."""
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value, depth)
            return f"{base}.{node.attr}" if base else ""
        if not isinstance(node, ast.Name):
            return ""
        bound = self.binding(node.id, node)
        if isinstance(bound, ast.Import | ast.ImportFrom):
            return _imported(bound, node.id)
        if isinstance(bound, ast.Assign) and depth < 5:
            return self.dotted(bound.value, depth + 1)
        return ""

    def loads(self, name: str, at: ast.AST) -> int:
        """Return how often what a name is at a node may be read in the file.

        Names of other scopes do not count that are bound there; attributes do, of a name that
        other modules or methods see.
        """
        scope = self._scope(name, at)
        is_local = isinstance(scope, (*FUNCTIONS, ast.Lambda))
        return sum(
            (
                isinstance(node, ast.Name)
                and node.id == name
                and isinstance(node.ctx, ast.Load)
                and self._scope(name, node) is scope
            )
            or (isinstance(node, ast.Attribute) and node.attr == name and not is_local)
            for node in ast.walk(self.tree)
        )

    def _scope(self, name: str, at: ast.AST) -> Scope | None:
        """Return the scope that binds a name as it is seen at a node; None if it is in none."""
        return next((one for one in self.scopes(at) if name in self.bindings.get(one, {})), None)

    def imported(self, module: str, name: str, at: Iterable[ast.AST]) -> str:
        """Return the name under which `module.name`, or the module, is there at some nodes.

        Where it is not, it is imported: at the top of the file, under a name that is free.

        Args:
            module: such as `jax.ad_checkpoint`.
            name: what of it; '' for the module, which has no dot then.
            at: where it is used.
        """
        wanted, places = f"{module}.{name}" if name else module, list(at)
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    there = alias.asname or alias.name.partition(".")[0]
                    if _imported(node, there) == wanted and all(
                        self.binding(there, place) is node or self._is_same(there, place, wanted)
                        for place in places
                    ):
                        return there
        free = name or module
        while self._is_bound(free):
            free += "_"
        renamed = "" if free == (name or module) else f" as {free}"
        line = f"from {module} import {name}" if name else f"import {module}"
        if line + renamed not in self.imports:
            self.imports.append(line + renamed)
        return free

    def _is_same(self, name: str, place: ast.AST, wanted: str) -> bool:
        """Whether a name that several statements bind means the same in all of them."""
        for scope in self.scopes(place):
            nodes = self.bindings.get(scope, {}).get(name)
            if nodes:
                return all(
                    isinstance(node, ast.Import | ast.ImportFrom)
                    and _imported(node, name) == wanted
                    for node in nodes
                )
        return False

    def _is_bound(self, name: str) -> bool:
        return any(name in names for names in self.bindings.values())

    def free(self, stem: str) -> str:
        """Return a name that the file does not have."""
        known = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        while stem in known or self._is_bound(stem):
            stem += "_"
        return stem

    def new(self, stem: str) -> str:
        """Return a name that neither the file nor another edit of it has."""
        names = (f"{stem}{number or ''}" for number in itertools.chain([0], itertools.count(2)))
        name = next(one for one in names if one not in self._new and self.free(one) == one)
        self._new.add(name)
        return name

    def helper(self, stem: str, text: str, node: ast.AST) -> str:
        """Put a function before the outermost statement around a node; return its name.

        Args:
            stem: its name, unless the file has it.
            text: its lines, with places for {name} and {jax}, the module's name there.
            node: where it is called.
        """
        if text not in self._helpers:
            outer = next(one for one in [*self.above(node)][::-1] if one in self.tree.body)
            assert isinstance(outer, ast.stmt)
            first = min(
                [outer.lineno, *(one.lineno for one in getattr(outer, "decorator_list", []))]
            )
            name = self._helpers[text] = self.free(stem)
            jax = self.imported("jax", "", [node, self.tree.body[0]])
            lines = text.format(name=name, jax=jax).rstrip("\n").split("\n")
            self.insert_line(first, self.line_end.join([*lines, "", ""]))
        return self._helpers[text]

    # -- the new text ------------------------------------------------------------------------------

    def wrap(self, node: ast.expr, before: str, after: str, rank: int = 0) -> None:
        """Put text around an expression."""
        start, end = self.span(node)
        self.replace((start, end), lambda render: f"{before}{render(start, end)}{after}", rank)

    def result(self) -> str:
        """Return the text with all edits.

        Raises:
            Refused: two edits overlap, or what comes out is no Python.
        """
        if self.imports:
            self.insert_line(self._import_line(), self.line_end.join(self.imports))
            self.imports = []
        text = self.edited()
        try:
            with warnings.catch_warnings(action="ignore"):  # the file as it was may have some
                compile(text, "", "exec", dont_inherit=True)  # a parser allows equal keywords
        except SyntaxError as error:
            raise Refused("the edited text is no Python") from error
        return self._head + text

    def _import_line(self) -> int:
        """Return the line before which an import goes: after those of JAX, or the first ones.

        What a file does before it imports JAX, such as setting a variable, stays before it.
        """
        after, is_leading, is_found = 0, True, False
        for number, node in enumerate(self.tree.body):
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            end = node.end_lineno or node.lineno
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                break
            if is_import and _is_of_jax(node):
                after, is_found = end, True
            elif is_found:
                break
            is_leading &= is_import or (number == 0 and _is_text(node))
            if is_leading and not is_found:
                after = end
        return after + 1


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """Return the dotted path that an import binds to a name."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if (alias.asname or alias.name) == name:
                return f"{node.module}.{alias.name}" if not node.level else ""
        elif alias.asname == name:
            return alias.name
        elif alias.asname is None and alias.name.partition(".")[0] == name:
            return name
    return ""


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_of_jax(node: ast.stmt) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.partition(".")[0] == "jax" for name in names)
