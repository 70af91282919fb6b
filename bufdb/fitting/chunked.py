"""Put the expressions of a wide loss into a function of one part of the batch.

    logits = x @ w                          def chunk(x, labels):
    picked = logits[…, labels]        →         logits = x @ w
    return -picked.mean()                       return logits[…, labels]

                                            values = in_chunks(chunk, 8, x, labels)
                                            return -values.mean()

Statements before what is wide stay before it. Where a statement is only in part wide, what gives a
value of each example is cut out of it; a sum or mean over all of the wide value is computed of each
part, and joined.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.plans import Change, Expression, Head, Site
from bufdb.fitting.source import FUNCTIONS, Source
from bufdb.fitting.statements import (
    UNIT,
    Lines,
    Replaced,
    block_of,
    check_lines,
    excerpt,
    flat,
    indented,
    inside_of,
    is_name,
    names_bound,
    names_read,
    range_of,
    rendered,
    word_of,
)
from bufdb.fitting.transforms import indent

_HELPER = '''\
def {name}(f, count, *arrays):
    """Return f of arrays, of one of `count` equal parts of their leading axis at a time."""

    def split(x):
        {split}

    def join(y):
        {join}

    f = {jax}.checkpoint(f, prevent_cse=False)
    parts = {jax}.tree.map(split, arrays)
    return {jax}.tree.map(join, {jax}.lax.map(lambda part: f(*part), parts))


'''
_AT_HEAD = '''\
def {{name}}(apply, x=None):
    """Return a function that gives what {title} gets while apply runs.

    With an x, it gets that, and the function gives what apply does.
    """

    def run(*args, **kwargs):
        inputs = []

        def intercept(call, args, kwargs, context):
            if context.method_name == "{method}" and context.module.{attribute} == {module}:
                args = args if x is None else (x,)
                inputs.extend(args)
            return call(*args, **kwargs)

        with {library}.intercept_methods(intercept):
            result = apply(*args, **kwargs)
        return inputs[0] if x is None else result

    return run


'''
_ON_ONE = (
    "return x.reshape(count, x.shape[0] // count, *x.shape[1:])",
    "return y.reshape(-1, *y.shape[2:])",
)
_ON_SEVERAL = (
    """# A part has an equal share of each of the {devices} devices.
        x = x.reshape({devices}, count, -1, *x.shape[1:]).swapaxes(0, 1)
        return x.reshape(count, -1, *x.shape[3:])""",
    """if y.ndim == 1:
            return y
        y = y.reshape(count, {devices}, -1, *y.shape[2:]).swapaxes(0, 1)
        return y.reshape(-1, *y.shape[3:])""",
)
_JOINS = ("mean", "sum", "max", "min")
_OTHER_SCOPES = (
    *FUNCTIONS, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def put_in_chunks(source: Source, change: Change) -> None:
    """Compute the wide piece of a loss for one part of the batch at a time.

    Raises:
        Refused: the text does not show how.
    """
    if change.obstacle:
        raise Refused(change.obstacle)
    callee: _Callee | _Head | None = None
    if change.head is not None:
        callee = _Head(source, change.head)
    elif change.callee is not None:
        if {one.site.file for one in change.callee.expressions} != {change.callee.site.file}:
            raise Refused("what makes the wide value is in another file than the loss")
        callee = _Callee(source, replace(
            change, expressions=change.callee.expressions, names=change.callee.names, callee=None
        ), change.callee.site)  # fmt: skip
    loss = _Loss(source, change, callee)
    loss.edit()
    if isinstance(callee, _Callee) and callee.call in loss.called:
        callee.edit()


@dataclass
class _Loss:
    """The statements of a function that have a wide piece, sorted."""

    source: Source
    change: Change
    callee: _Callee | _Head | None = None
    """What makes the wide value in a call, after what is before it."""
    called: dict[ast.expr, str] = field(default_factory=dict)
    """Its call, or the function there, and what is in its place."""
    nodes: dict[ast.AST, Expression] = field(default_factory=dict)
    lost: list[Site] = field(default_factory=list)
    """Of expressions that are not found in the text."""
    before: list[ast.stmt] = field(default_factory=list)
    inside: list[ast.stmt] = field(default_factory=list)
    after: list[ast.stmt] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    """Names that statements inside bind, and what each gives."""
    later: set[str] = field(default_factory=set)
    """Names that statements after it bind."""
    hoisted: dict[ast.expr, str] = field(default_factory=dict)
    """Expressions that are computed before, with their names."""
    cuts: dict[ast.expr, tuple[str, str]] = field(default_factory=dict)
    """Expressions of statements after it that are computed inside, their names and joins."""
    returned: dict[str, None] = field(default_factory=dict)
    """Names bound inside that are read after it."""
    taken: set[str] = field(default_factory=set)
    """New names."""

    def __post_init__(self) -> None:
        for one in self.change.expressions:
            try:
                self.nodes[self.source.find(one.site)] = one
            except Refused:
                if one.is_member:
                    raise
                self.lost.append(one.site)
        self.has = {one.text: one.has for one in self.change.names}
        members = [node for node, one in self.nodes.items() if one.is_member]
        self.function, self.block = block_of(self.source, members)
        first, last = range_of(self.source, self.block, members)
        self.first = first
        self._sort(first, last)

    # -- Statements --------------------------------------------------------------------------------

    def _sort(self, first: int, last: int) -> None:
        """Sort statements into those before, inside and after the piece."""
        for at, statement in enumerate(self.block[first:], first):
            touches = self._touches(statement)
            is_inside = touches and self._is_inside(statement)
            if at > last and not is_inside:
                break
            if is_inside:
                self.inside.append(statement)
            elif touches or names_read(statement) & self.later:
                self.after.append(statement)
                self.later |= names_bound(statement)
                self._cut(statement)
            else:
                self.before.append(statement)
            self.last = at
        self._check_order()

    def _check_order(self) -> None:
        """Refuse statements whose order matters, and a wide value that is read elsewhere.

        Raises:
            Refused: there are such.
        """
        groups = (self.before, self.inside, self.after)
        bound = [set().union(*map(names_bound, some)) for some in groups]
        if bound[0] & (bound[1] | bound[2]) or bound[1] & bound[2]:
            raise Refused("a name gets several values between its lines")
        if any(names_read(one) & bound[2] for one in self.inside):
            raise Refused("its lines read what others between them compute")
        span = self.block[self.first].lineno, self.block[self.last].end_lineno or 0
        if any(span[0] <= site.line <= span[1] for site in self.lost):
            raise Refused("the position of an expression between its lines is not reliable")
        own = {inner for some in groups for one in some for inner in ast.walk(one)}
        for node in ast.walk(self.function):
            if not isinstance(node, ast.Name) or node in own or node.lineno < span[0]:
                continue
            if isinstance(node.ctx, ast.Load) and node.id in self.made:
                self._return(node)

    def _touches(self, node: ast.AST) -> bool:
        """Return whether a node has some of the piece, or reads what it binds."""
        return self._has_member(node) or any(
            isinstance(inner, ast.Name) and inner.id in self.made for inner in ast.walk(node)
        )

    def _has_member(self, node: ast.AST) -> bool:
        return any(one in self.nodes and self.nodes[one].is_member for one in ast.walk(node))

    def _is_inside(self, statement: ast.stmt) -> bool:
        """Return whether a part of the batch can run a statement; its names are known then."""
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if not targets or value is None or names_read(value) & self.later:
            return False
        hoisted: list[ast.expr] = []
        if not self._is_part(value, hoisted) or not all(is_name(one) for one in targets):
            return False
        whole = self.nodes.get(statement)
        if whole is not None and not whole.is_part:
            return False
        gives = self._gives(value) if whole is None else whole.gives
        if gives not in ("wide", "each"):
            return False
        self.hoisted |= {one: self._free("x") for one in hoisted}
        self.made |= dict.fromkeys(names_bound(statement), gives)
        return True

    # -- Expressions -------------------------------------------------------------------------------

    def _is_part(self, node: ast.AST, hoisted: list[ast.expr]) -> bool:
        """Return whether a part can compute an expression; collect what is to be done before."""
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        one, children = self.nodes.get(node), list(ast.iter_child_nodes(node))
        if self.callee is not None and node is self.callee.call:
            return all(self._is_part(child, hoisted) for child in self.callee.kept)
        if self._touches(node):
            is_part = one is None or one.is_part
            return is_part and all(self._is_part(child, hoisted) for child in children)
        inner = [self.nodes[child] for child in ast.walk(node) if child in self.nodes]
        if all(other.is_part for other in inner):
            return True
        if one is None:
            return all(self._is_part(child, hoisted) for child in children)
        within = [above for above in self.source.above(node) if above is not self.function]
        is_apart = any(isinstance(above, _OTHER_SCOPES) for above in inside_of(within, self.block))
        if one.gives in ("", "wide") or is_apart or not isinstance(node, ast.expr):
            return False
        hoisted.append(node)
        return True

    def _gives(self, node: ast.AST) -> str:
        """Return what an expression gives; '' if it is not known."""
        if node in self.nodes:
            return self.nodes[node].gives
        if isinstance(node, ast.Name):
            return self.made.get(node.id, "")
        touching = [child for child in ast.iter_child_nodes(node) if self._touches(child)]
        return self._gives(touching[0]) if len(touching) == 1 else ""

    def _cut(self, node: ast.AST) -> None:
        """Choose what of a statement after the piece is computed inside.

        Raises:
            Refused: a wide value is needed there.
        """
        if not self._touches(node):
            return
        if isinstance(node, ast.Name) and node.id in self.made:
            self._return(node)
            return
        if isinstance(node, (*_OTHER_SCOPES, ast.If, ast.For, ast.While, ast.With, ast.Try)):
            self._cut_names(node)
            return
        one = self.nodes.get(node)
        hoisted: list[ast.expr] = []
        is_made_here = self._has_member(node)  # else names are returned
        is_each = one is not None and one.gives == "each" and is_made_here
        if is_each and self._is_part(node, hoisted):
            self._cut_out(node, "", hoisted)
            return
        children = list(ast.iter_child_nodes(node))
        if one is None or not one.is_member:
            before = dict(self.cuts), dict(self.returned), dict(self.hoisted)
            try:
                for child in children:
                    self._cut(child)
            except Refused:
                is_joined = one is not None and one.is_joined and one.gives in _JOINS
                if not (is_joined and all(self._is_part(child, []) for child in children)):
                    raise
                self.cuts, self.returned, self.hoisted = before
            else:
                return
        is_joined = one is not None and one.is_joined and one.gives in _JOINS
        if is_joined and all(self._is_part(child, hoisted) for child in children):
            assert one is not None
            self._cut_out(node, one.gives, hoisted)
            return
        raise Refused(self._obstacle(node))

    def _obstacle(self, node: ast.AST) -> str:
        """Return what of an expression no part can compute: the innermost that says why."""
        shown, why = node, "is neither a mean nor a sum of each part's"
        for inner in ast.walk(node):
            one = self.nodes.get(inner)
            if one is not None and one.why_not and not one.is_joined and self._touches(inner):
                shown, why = inner, one.why_not
        return f"`{excerpt(self.source, shown)}` {why}"

    def _cut_names(self, node: ast.AST) -> None:
        """Return the names that a statement or function of its own reads, which has no cuts."""
        for inner in ast.walk(node):
            if inner in self.nodes and self.nodes[inner].is_member:
                raise Refused("its lines are in several blocks")
            if isinstance(inner, ast.Name) and inner.id in self.made:
                self._return(inner)

    def _cut_out(self, node: ast.AST, join: str, hoisted: Sequence[ast.expr]) -> None:
        assert isinstance(node, ast.expr)
        self.cuts[node] = self._free(f"{join}s" if join in ("mean", "sum") else "values"), join
        self.hoisted |= {one: self._free("x") for one in hoisted}

    def _return(self, name: ast.Name) -> None:
        if self.made[name.id] != "each":
            raise Refused(f"{name.id} is wide, and line {name.lineno} reads it")
        self.returned[name.id] = None

    def _free(self, stem: str) -> str:
        name, number = stem, 1
        module = {
            name
            for name, nodes in self.source.bindings.get(self.source.tree, {}).items()
            if not all(isinstance(node, ast.arg) for node in nodes)
        }
        known = {one.id for one in ast.walk(self.function) if isinstance(one, ast.Name)}
        known |= {one.arg for one in ast.walk(self.function) if isinstance(one, ast.arg)}
        while name in self.taken or name in known or name in module or hasattr(builtins, name):
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    # -- What a part gets --------------------------------------------------------------------------

    def _parameters(self) -> tuple[list[str], list[str], list[Replaced]]:
        """Return parameters of the function, arguments of it, and items that parameters replace.

        Raises:
            Refused: it is not known whether a name has the batch.
        """
        arguments: dict[str, tuple[str, str]] = {}
        replaced: list[Replaced] = []
        bound: set[str] = set()
        for statement in self.inside:
            self._take(getattr(statement, "value", statement), bound, arguments, replaced)
            if isinstance(statement, ast.AugAssign):
                self._take(statement.target, bound, arguments, replaced)
            bound |= names_bound(statement)
        for node in self.cuts:
            self._take(node, bound, arguments, replaced)
        if not arguments:
            raise Refused("no name of its lines has the batch")
        parameters = [name for name, _ in arguments.values()]
        if lost := (bound - set(parameters)) & self._closed(bound):
            raise Refused(f"{min(lost)} is read before its lines bind it")
        return parameters, [text for _, text in arguments.values()], replaced

    def _closed(self, bound: set[str]) -> set[str]:
        """Return names that the lines read before they bind them."""
        known: set[str] = set()
        early: set[str] = set()
        for statement in self.inside:
            value = getattr(statement, "value", statement)
            early |= (names_read(value) & bound) - known
            if isinstance(statement, ast.AugAssign):
                early |= names_bound(statement) - known
            known |= names_bound(statement)
        return early

    def _take(
        self,
        node: ast.AST,
        bound: set[str],
        arguments: dict[str, tuple[str, str]],
        replaced: list[Replaced],
    ) -> None:
        """Note which names and items of an expression are parameters, with their arguments."""
        if isinstance(self.callee, _Head) and node is self.callee.call:
            if not self.called:
                x = self.callee.received = self._free("x")
                arguments[x] = x, x
                self.called[self.callee.call.func] = self.callee.text(x)
            for child in self.callee.kept:
                self._take(child, bound, arguments, replaced)
            return
        if isinstance(self.callee, _Callee) and node is self.callee.call:
            assert isinstance(node, ast.expr)
            if node not in self.called:
                head, results = self._free("head"), [self._free(x) for x in self.callee.results]
                self.called[node] = f"{head}({', '.join(results)})"
                arguments |= {name: (name, name) for name in results}
                self.callee.received = ", ".join((head, *results))
            return
        if isinstance(node, ast.expr) and node in self.hoisted:
            if self._gives(node) == "each":
                name = self.hoisted[node]
                arguments[name] = name, name
            return
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Subscript) else ""
        if self.has.get(text) == "batch" and not names_read(node) & bound:
            assert isinstance(node, ast.expr)
            if text not in arguments:
                arguments[text] = self._free(word_of(text)), self.source.of(node)
            replaced.append((node, arguments[text][0]))
            return
        is_own = isinstance(node, ast.Name) and node.id not in bound
        if isinstance(node, ast.Name) and is_own and self._is_local(node):
            if (has := self.has.get(node.id, "unclear")) == "batch":
                arguments[node.id] = node.id, node.id
            elif has != "same" and not self._is_same_item(node):
                raise Refused(f"{node.id} {_WHY[has]}")
        for child in ast.iter_child_nodes(node):
            self._take(child, bound, arguments, replaced)

    def _is_same_item(self, node: ast.Name) -> bool:
        """Return whether only an item of a name is read, without the batch."""
        above = self.source.parents[node]
        is_item = isinstance(above, ast.Attribute | ast.Subscript) and above.value is node
        return is_item and self.has.get(ast.unparse(above)) == "same"

    def _is_local(self, node: ast.Name) -> bool:
        """Return whether a name is bound in a function around it, and not within the expression."""
        for scope in self.source.scopes(node):
            if node.id in self.source.bindings.get(scope, {}):
                is_around = scope is self.function or scope in self.source.above(self.function)
                return is_around and scope is not self.source.tree
        return False

    # -- The new text ------------------------------------------------------------------------------

    def edit(self) -> None:
        """Make the edit."""
        source, block = self.source, self.block
        first = block[self.first]
        space = indent(source, first)
        statements = block[self.first : self.last + 1]
        check_lines(source, statements, space)
        parameters, arguments, items = self._parameters()
        jax_free = {"devices": str(self.change.devices)}
        split, join = _ON_ONE if self.change.devices == 1 else (
            text.format(**jax_free) if "{" in text else text for text in _ON_SEVERAL
        )  # fmt: skip
        text = _HELPER.replace("{split}", split).replace("{join}", join)
        helper = source.helper("in_chunks", text, first)
        chunk = self._free("chunk")
        lines = Lines(source, statements)
        called = f"{helper}({chunk}, {self.change.count}, {', '.join(arguments)})"
        results = [*self.returned, *(name for name, _ in self.cuts.values())]
        if not results:
            raise Refused("nothing of each example is read of it")
        inner = [*items, *self.hoisted.items(), *self.called.items()]
        joined = [(node, self._joined(node, *cut)) for node, cut in self.cuts.items()]

        def make(render: Render) -> str:
            def text(node: ast.expr, some: Sequence[Replaced]) -> str:
                return rendered(render, source.span(node), source, some)

            out = [lines.text(one, render, []) for one in self.before]
            out += [f"{space}{name} = {text(node, [])}" for node, name in self.hoisted.items()]
            if self.callee is not None and self.called:
                function = [(self.callee.call.func, self.callee.function_text(render))]
                out.append(f"{space}{self.callee.received} = {text(self.callee.call, function)}")
            out += ["", f"{space}def {chunk}({', '.join(parameters)}):"]
            out += [indented(lines.text(one, render, inner)) for one in self.inside]
            values = [*self.returned, *(flat(text(node, inner)) for node in self.cuts)]
            out += [f"{space}{UNIT}return {', '.join(values)}", ""]
            out.append(f"{space}{', '.join(results)} = {called}")
            out += [lines.text(one, render, joined) for one in self.after]
            return source.line_end.join(out)

        source.replace((lines.start, lines.end), make)

    def _joined(self, node: ast.expr, name: str, join: str) -> str:
        """Return what is in the place of an expression: what its parts give, under a name."""
        statement = self.source.parents[node]
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if join and any(isinstance(one, ast.Tuple | ast.List) for one in targets):
            return f"(one.{join}() for one in {name})"  # several numbers, each alike
        return f"{name}.{join}()" if join else name


class _Head:
    """A call in which a module of a framework makes the wide value.

    It is called twice: for the input of the module, and in each part of the batch with a part of
    that. What it computes before the module is dead code there.
    """

    def __init__(self, source: Source, head: Head) -> None:
        """Take the module.

        Raises:
            Refused: the call is none of a function by name.
        """
        call = source.find(head.site)
        if not isinstance(call, ast.Call):
            raise Refused("what makes the wide value is no call")
        self.source, self.head, self.call = source, head, call
        self.received = ""
        """Name of the module's input."""

    @property
    def kept(self) -> list[ast.AST]:
        """Return what is in the call within a part of the batch, too."""
        return [*self.call.args, *self.call.keywords]

    def function_text(self, render: Render) -> str:
        """Return what is called for the input of the module."""
        return self.text()

    def text(self, *more: str) -> str:
        """Return what is called in place of the function, for an input of the module if any."""
        source, head = self.source, self.head
        library = source.imported(head.library, "", [self.call, source.tree.body[0]])
        text = _AT_HEAD.format(
            title=_title(head),
            attribute=head.attribute,
            module=head.module,
            method=head.method,
            library=library,
        )
        name = source.helper("at_head", text, self.call)
        return f"{name}({', '.join([source.of(self.call.func), *more])})"


def _title(head: Head) -> str:
    """Return a module of a framework in words."""
    name = ast.literal_eval(head.module)
    path = "/".join(name) if isinstance(name, tuple) else name
    method = "" if head.method == "__call__" else f"{head.method} of "
    return f"{method}module {path} of {head.library}"


class _Callee(_Loss):
    """A function whose last statements make the wide value: they become a function it returns."""

    kept: Sequence[ast.AST] = ()
    """Nothing of the call is within a part of the batch."""

    def __init__(self, source: Source, change: Change, site: Site) -> None:
        """Take the call of it.

        Raises:
            Refused: the call or the function does not show how.
        """
        call = source.find(site)
        super().__init__(source, change)
        assert isinstance(call, ast.Call)
        self.call = call
        self.received = ""
        """Names of what the call returns then."""
        function = self.function
        self.name = f"{function.name.strip('_')}_in_two"
        self.is_method = isinstance(source.parents[function], ast.ClassDef)
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        called = call.func.id if isinstance(call.func, ast.Name) else called
        is_itself = self.is_method and function.name == "__call__"
        returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
        if function.decorator_list:
            what = excerpt(source, function.decorator_list[0])
            raise Refused(
                f"{function.name} has the decorator {what}, and is not taken apart; return from it "
                "what the wide product takes, and compute the rest for each part"
            )
        if len(returns) != 1 or self.block is not function.body:
            raise Refused(f"{function.name} has several returns, or one within a block")
        is_itself &= isinstance(call.func, ast.Name | ast.Attribute)  # no jax.vmap of it
        if not is_itself and called != function.name:
            raise Refused(f"the call does not show {function.name}")
        if self.source.free(self.name) != self.name:
            raise Refused(f"the file has a {self.name} already")
        self.parameters, self.results, self.items = self._parameters()
        if self.items or self.after:
            raise Refused(f"{function.name} computes more after the wide value")

    def _is_inside(self, statement: ast.stmt) -> bool:
        """Return whether it is one that a part can run, or the last one, which returns."""
        if not isinstance(statement, ast.Return) or statement.value is None:
            return super()._is_inside(statement)
        hoisted: list[ast.expr] = []
        is_wide = self._gives(statement.value) == "wide"
        is_part = self._is_part(statement.value, hoisted)
        self.hoisted |= {one: self._free("x") for one in hoisted}
        return is_part and is_wide and statement is self.function.body[-1]

    def function_text(self, render: Render) -> str:
        """Return what is called in its place."""
        func = self.call.func
        if isinstance(func, ast.Attribute) and func.attr == self.function.name:
            return f"{render(*self.source.span(func.value))}.{self.name}"
        return f"{render(*self.source.span(func))}.{self.name}" if self.is_method else self.name

    def edit(self) -> None:
        """Return the last statements as a function, with what it is to be given."""
        source, function = self.source, self.function
        statements = self.block[self.first :]
        space, outer = indent(source, statements[0]), indent(source, function)
        check_lines(source, statements, space)
        lines = Lines(source, statements)
        inner = list(self.hoisted.items())
        head, names = self._free("head"), ", ".join(self.parameters)
        passed = _passed(function.args, skip=self.is_method)
        owner = f"{function.args.args[0].arg}." if self.is_method else ""
        definition = source.offset(function.lineno, function.col_offset)
        start = source.raw.index(function.name.encode(), definition)
        colon = source.raw[definition : source.span(function.body[0])[0]].decode().rstrip()

        def make(render: Render) -> str:
            out = [lines.text(one, render, []) for one in self.before]
            out += [
                f"{space}{name} = {rendered(render, source.span(node), source, [])}"
                for node, name in self.hoisted.items()
            ]
            out += ["", f"{space}def {head}({names}):"]
            out += [indented(lines.text(one, render, inner)) for one in self.inside]
            out += ["", f"{space}return {head}, {', '.join(self.results)}", ""]
            out += [] if self.is_method else [""]
            out += [f"{outer}{line}" for line in colon.split("\n")[:1]]
            out += colon.split("\n")[1:]
            out.append(f"{space}{head}, *rest = {owner}{self.name}({passed})")
            out.append(f"{space}return {head}(*rest)")
            return source.line_end.join(out)

        end = start + len(function.name.encode())
        source.replace((start, end), lambda render: self.name)
        source.replace((lines.start, lines.end), make)


def _passed(args: ast.arguments, *, skip: bool) -> str:
    """Return the arguments with which a function passes on its own."""
    passed = [one.arg for one in [*args.posonlyargs, *args.args][1 if skip else 0 :]]
    passed += [f"*{args.vararg.arg}"] if args.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in args.kwonlyargs]
    passed += [f"**{args.kwarg.arg}"] if args.kwarg else []
    return ", ".join(passed)


_WHY: Mapping[str, str] = {
    "mixed": "has the batch in some of its items only",
    "size": "is a number that grows with the batch",
    "unclear": "may have the batch, which its lines do not show",
}
