"""A Python loop as a `jax.lax.scan`, by its text: its body becomes a function.

    for p in params:                    def fit_block(x, p):
        x = block(p, x)                     x = block(p, x)
                                            return x, None

                                        x, _ = jax.lax.scan(fit_block, x, …)

What the numbers of a loop make, such as `params[f"layer_{i}"]`, is made in a loop before it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.identity import BLOCK
from bufdb.fitting.plans import Site
from bufdb.fitting.source import FUNCTIONS, Source

_INNER = (*FUNCTIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What has names of its own."""
_LEAVING = (
    ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal,
    ast.Global, ast.Delete, ast.NamedExpr, ast.Import, ast.ImportFrom, ast.Try, ast.TryStar,
    ast.Raise, ast.ClassDef, ast.Expr,
)  # fmt: skip
"""What the body of a scan does not do, or once in place of each time."""


def loop_around(source: Source, node: ast.AST) -> ast.For | None:
    """Return the innermost `for` of the function around a node that repeats it."""
    inner = node
    for parent in source.above(node):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(parent, ast.For) and inner in parent.body:
            return parent
        inner = parent
    return None


def roll(source: Source, site: Site) -> None:
    """Change the loop around an expression into a scan.

    Raises:
        Refused: its body does what no body of a scan can.
    """
    loop = loop_around(source, source.find(site))
    if loop is None:
        raise Refused("no `for` of its function repeats it")
    _require_plain(source, loop)
    _Rolled(source, loop).edit()


def _require_plain(source: Source, loop: ast.For) -> None:
    """Refuse a loop whose body is no function of what it reads."""
    if not isinstance(next(iter(source.scopes(loop)), None), FUNCTIONS):
        raise Refused("its loop is in no function")
    header_end = loop.iter.end_lineno or 0
    after = source.raw[source.span(loop.iter)[1] : source.offset(header_end + 1, 0)]
    if loop.orelse or not after.lstrip().startswith(b":") or loop.body[0].lineno <= header_end:
        raise Refused("its loop has an else, or no line for its body")
    for node in _own(loop.body):
        if isinstance(node, _LEAVING):
            raise Refused(f"line {node.lineno} does what the body of a scan cannot")
        store = getattr(node, "ctx", None)
        if isinstance(store, ast.Store) and isinstance(node, ast.Attribute | ast.Subscript):
            raise Refused(f"line {node.lineno} changes an object")
    if not all(isinstance(one, ast.Name | ast.Tuple | ast.Store) for one in ast.walk(loop.target)):
        raise Refused("its loop assigns to what is no name")


@dataclass
class _Rolled:
    """A loop on its way into a scan."""

    source: Source
    loop: ast.For
    _made: list[str] = field(default_factory=list)
    """Lines that make what the scan runs over."""

    # -- What the body takes -----------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> set[str]:
        """Return the names that are whole numbers of the loop."""
        target, values = self.loop.target, self.loop.iter
        function = values.func if isinstance(values, ast.Call) else None
        if not isinstance(function, ast.Name) or self.source.binding(function.id, values):
            return set()
        if function.id == "enumerate" and isinstance(target, ast.Tuple):
            return _stored(target.elts[:1])
        return _stored([target]) if function.id == "range" else set()

    @cached_property
    def _first(self) -> list[ast.stmt]:
        """Return the statements at the beginning that make something of the numbers alone."""
        first: list[ast.stmt] = []
        for at, one in enumerate(self.loop.body):
            own, after = _stored([one]), _stored(self.loop.body[at + 1 :])
            known = self._numbers | _stored(first)
            others = _stored(self.loop.body) - known
            is_made = isinstance(one, ast.Assign) and _read([one]) & known
            if not is_made or _read([one]) & others or own & (after | self._read_outside):
                break
            first.append(one)
        return first

    @cached_property
    def _rest(self) -> list[ast.stmt]:
        return self.loop.body[len(self._first) :]

    @cached_property
    def _read_outside(self) -> set[str]:
        """Return the names that the function around may read once the loop has ended."""
        function, inside = self.source.scopes(self.loop)[0], {*ast.walk(self.loop)}
        is_repeated = any(
            isinstance(one, ast.For | ast.While) for one in self.source.above(self.loop)
        )
        return {
            one.id
            for one in ast.walk(function)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one not in inside
            if is_repeated or one.lineno > (self.loop.end_lineno or 0)
        }

    @cached_property
    def _carry(self) -> list[str]:
        """Return the names that an iteration hands to the next one, or to what follows the loop."""
        stored, carry = _stored(self._rest), set[str]()
        known = _stored([self.loop.target, *self._first])
        if known & stored:
            raise Refused("its body assigns to what the loop does")
        for one in self._rest:
            added = _stored([one]) if isinstance(one, ast.AugAssign) else set()
            carry |= ((_read([one]) | added) & stored) - known
            if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.FunctionDef):
                known |= _stored([one])
        carry |= stored & self._read_outside
        if not carry:
            raise Refused("its iterations hand nothing on")
        return [name for name in _ordered(self._rest) if name in carry]

    @cached_property
    def _lifted(self) -> dict[str, list[ast.expr]]:
        """Return the expressions of the rest that the numbers alone make, by their text.

        In a scan a number of the loop is an array, which is no key of a dict, and no length.
        """
        numbers = self._numbers | _stored(self._first)
        inner = _bound(self._rest) - numbers
        lifted: dict[str, list[ast.expr]] = {}

        def look(node: ast.AST) -> None:
            is_value = isinstance(node, ast.Subscript | ast.Call | ast.BinOp | ast.Attribute)
            names = _read([node])
            if is_value and isinstance(node, ast.expr) and names & numbers and not names & inner:
                lifted.setdefault(self.source.of(node), []).append(node)
                return
            function = node.func if isinstance(node, ast.Call) else None
            for child in ast.iter_child_nodes(node):
                if child is function and isinstance(child, ast.Attribute):
                    child = child.value  # no method is an array
                look(child)

        for one in self._rest:
            look(one)
        return lifted

    def _require_arrays(self) -> None:
        """Refuse a loop whose numbers choose a function or a class: these cannot be stacked.

        What a function returns may be arrays, and so may what a class is made with.
        """
        for one in self._first:
            called = {node.func for node in ast.walk(one) if isinstance(node, ast.Call)}
            for node in ast.walk(one):
                if isinstance(node, ast.Name) and node not in called:
                    bound = self.source.binding(node.id, node)
                    if isinstance(bound, (*FUNCTIONS, ast.ClassDef)):
                        raise Refused(f"line {one.lineno} makes a function for each time")

    # -- The text ----------------------------------------------------------------------------------

    def edit(self) -> None:
        """Put a function, and its scan, in the place of the loop."""
        source, loop = self.source, self.loop
        self._require_arrays()
        carry, end = self._carry, source.line_end
        indent, inner = self._indent(loop), self._indent(loop.body[0])
        before, argument, unpacked, values = self._parts()
        name, jax = source.free(BLOCK), source.imported("jax", "", [loop])
        start, stop = source.offset(loop.lineno, 0), source.span(loop)[1]
        body = self._line_after(self._first[-1] if self._first else loop.iter)
        state, result = carry[0], carry[0]
        if len(carry) > 1:
            state, result = source.free("fit_carry"), f"({', '.join(carry)})"
            unpacked.insert(0, f"{', '.join(carry)} = {state}")
        if before or not self._is_apart:
            before.append("")
        opened = [f"{indent}def {name}({state}, {argument}):", *(inner + one for one in unpacked)]
        closed = [
            f"{inner}return {result}, None",
            "",
            *(indent + one for one in self._made),
            f"{indent}{result}, _ = {jax}.lax.scan({name}, {result}, {values})",
        ]

        def text(render: Render) -> str:
            kept = render(body, stop)
            return end.join([*before, *opened, kept, *closed])

        source.replace((start, stop), text)

    @property
    def _is_apart(self) -> bool:
        """Return whether the line before the loop is empty, or opens its block."""
        start = self.source.offset(self.loop.lineno, 0)
        line = self.source.raw[:start].rstrip(b"\r\n").rpartition(b"\n")[2].strip()
        is_empty = self.source.raw[:start].endswith((b"\n\n", b"\r\n\r\n"))
        return is_empty or line.endswith(b":")

    def _parts(self) -> tuple[list[str], str, list[str], str]:
        """Return what has the parts of the iterations.

        Returns:
            Lines before the function; its parameter; lines that unpack it; what the scan runs over.
        """
        source, loop = self.source, self.loop
        lifted = [node for nodes in self._lifted.values() for node in nodes]
        bare = _read(self._rest, without=lifted) & _stored([loop.target, *self._first])
        if not (self._first or lifted):
            target = source.of(loop.target)
            is_open = isinstance(loop.target, ast.Tuple)
            return [], *self._parameter(target, not is_open, bool(bare)), self._over(bool(bare))
        names = [one for one in _ordered([loop.target, *self._first]) if one in bare]
        texts = [*names]
        for at, (text, nodes) in enumerate(self._lifted.items()):
            names.append(source.free(f"fit_{at}"))
            texts.append(" ".join(text.split()) if "\n" in text else text)
            for node in nodes:
                source.replace(source.span(node), _always(names[-1]))
        if not names:
            raise Refused("nothing that its loop makes is read")
        items = source.free("fit_parts")
        item = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
        indent, inner = self._indent(loop), self._indent(loop.body[0])
        first = self._line_after(self._first[-1] if self._first else loop.iter)
        made = source.raw[source.offset(loop.lineno, 0) : first].decode().rstrip("\r\n")
        before = [f"{indent}{items} = []", made, f"{inner}{items}.append({item})"]
        return (
            before,
            *self._parameter(", ".join(names), len(names) == 1, True),
            self._stacked(items),
        )

    def _parameter(self, names: str, is_single: bool, is_read: bool) -> tuple[str, list[str]]:
        """Return the parameter of the function, and lines that unpack it."""
        if not is_read:
            return "_", []
        part = names if is_single else self.source.free("fit_part")
        return part, [] if is_single else [f"{names} = {part}"]

    def _over(self, is_read: bool) -> str:
        """Return what the scan runs over in the place of the loop's values."""
        values = self.loop.iter
        text = self.source.of(values)
        if not is_read:
            return f"length=len({text})"
        is_number = isinstance(self.loop.target, ast.Name) and self._numbers
        if isinstance(values, ast.Call) and is_number:
            jnp = self.source.imported("jax", "numpy", [self.loop])
            return f"{jnp}.arange({', '.join(map(self.source.of, values.args))})"
        return self._stacked(text)

    def _stacked(self, values: str) -> str:
        jax = self.source.imported("jax", "", [self.loop])
        jnp = self.source.imported("jax", "numpy", [self.loop])
        array, parts = self.source.free("fit_a"), self.source.free("fit_parts")
        self._made.append(
            f"{parts} = {jax}.tree.map(lambda *{array}: {jnp}.stack({array}), *{values})"
        )
        return parts

    def _indent(self, node: ast.stmt) -> str:
        start = self.source.offset(node.lineno, 0)
        return self.source.raw[start : start + node.col_offset].decode()

    def _line_after(self, node: ast.expr | ast.stmt) -> int:
        return self.source.offset((node.end_lineno or 0) + 1, 0)


# -- Names -----------------------------------------------------------------------------------------


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes and what is in them, except what has names of its own."""
    for node in nodes:
        yield node
        if not isinstance(node, _INNER):
            yield from _own(ast.iter_child_nodes(node))


def _ordered(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names that are assigned, in the order of the text."""
    names = (
        node.name if isinstance(node, FUNCTIONS) else node.id
        for node in _own(nodes)
        if isinstance(node, FUNCTIONS)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return [*dict.fromkeys(names)]


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {*_ordered(nodes)}


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are assigned, or parameters, also in functions within."""
    inside = [one for node in nodes for one in ast.walk(node)]
    parameters = {one.arg for one in inside if isinstance(one, ast.arg)}
    stores = (one for one in inside if isinstance(one, ast.Name))
    return (
        parameters | _stored(inside) | {one.id for one in stores if isinstance(one.ctx, ast.Store)}
    )


def _read(nodes: Iterable[ast.AST], without: Sequence[ast.AST] = ()) -> set[str]:
    """Return the names that nodes read."""
    left_out = {inner for one in without for inner in ast.walk(one)}
    return {
        one.id
        for node in nodes
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one not in left_out
    }


def _always(text: str) -> Callable[[Render], str]:
    """Return an edit's text that depends on no other edit."""
    return lambda render: text
