"""Calls of one function without a scan: checkpointed, or not.

    find     functions of the user that are called twice or more, or once if they compute much, and
             whose values matter; statements that are written out, too (`stretches`)
    trace    the equations of a call run as one checkpoint, which saves nothing; those of a call
             within it as written, or as a checkpoint in it
    edit     the call becomes that of a checkpoint, of JAX or of the library whose state it changes:

        jax.checkpoint(block)(p, x)             arrays, and values of Python as `static_argnums`
        eqx.filter_checkpoint(block)(x)         a module of equinox
        jax.checkpoint(lambda: CALL)()          where an argument is neither, or not known
        nnx.remat(lambda block: CALL)(block)    modules of flax.nnx, whose changes come out again
        nn.remat(lambda block: CALL)(block)     a module of flax.linen, the same
        hk.remat(lambda: CALL)()                within haiku's transform
        jax.checkpoint(layer)(x, w)             statements, as a function before them

What a closure has is at another level of traces than what a checkpoint computes, so the modules are
arguments; arrays and other values stay in the closure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from bufdb.capture.target import jax_module
from bufdb.fitting.direct import direct
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.frameworks import JAX, named
from bufdb.fitting.lever import Atom, Lever, Trial
from bufdb.fitting.loops import counter, first_calls
from bufdb.fitting.places import place
from bufdb.fitting.plans import Plan, Program, Region, Site
from bufdb.fitting.reader import Key, Reader
from bufdb.fitting.source import Source
from bufdb.fitting.statements import UNIT, Lines, check_lines, indented
from bufdb.fitting.stretches import stretch_at

LEAST_RATIO = 0.01
"""What checkpointing calls must take off the live values to be a region."""
FORMS = {
    "": f"{JAX.checkpoint}(FUNCTION)(ARGUMENTS)",
    "nnx": f"{named('nnx').checkpoint}(lambda module: CALL of it)(module)",
    "linen": f"{named('linen').checkpoint}(lambda module: CALL of it)(module)",
    "haiku": f"{named('haiku').checkpoint}(lambda: CALL)()",
}
"""What a call becomes, by the library whose state it changes."""
LINES = f"{JAX.checkpoint}(FUNCTION of these lines)(NAMES)"
"""What statements become."""
POLICY = "{jax}.checkpoint_policies.dots_saveable"
_REMATS = {"nnx": ("flax", "nnx"), "linen": ("flax", "linen"), "haiku": ("haiku", "")}
"""Where the `remat` of a library is imported from."""


class Calls(Lever):
    """Calls of a function as checkpoints."""

    name = "calls"

    def matters(self, trial: Trial, at: int) -> bool:
        """Return whether checkpoints of calls save something that the compiler keeps."""
        region = trial.regions[at]
        if region.kind != "call":
            return False
        live = trial.written.live_bytes
        if live - trial.trace(Plan(calls=(at,))).live_bytes < LEAST_RATIO * live:
            return False
        if trial.platform == "cpu":
            what = "lines" if region.is_stretch else "calls"
            trial.notes.append(
                f"{what} of {region.function} ({place(region.sites[0])}) stay as they are: the "
                "compiler for CPUs merges what a checkpoint computes again"
            )
            return False
        return True

    def part(
        self, reader: Reader, region_of: Callable[[Key, Site], int | None], plan: Plan, eqn: Any
    ) -> tuple[int, Any] | None:
        """Return the outermost of the call regions that an equation is in, and which call."""
        for key, instance, site in reader.chain(eqn):
            region = region_of(key, site)
            if region is None or region not in plan.calls:
                continue
            depth = plan.depth(region)
            if depth is None or depth.with_dots or reader.calls.rank(instance) < depth.count:
                return region, instance
        return None

    def checkpoint(
        self, reader: Reader, plan: Plan, part: tuple[int, Any], run: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a call as a checkpoint."""
        jax = jax_module()
        region, instance = part
        depth = plan.depth(region)
        is_first = depth is None or reader.calls.rank(instance) < depth.count
        has_dots = region in plan.with_dots if is_first or depth is None else depth.with_dots
        policy = jax.checkpoint_policies.dots_saveable if has_dots else None
        checkpointed: Callable[..., Any] = jax.checkpoint(run, policy=policy)
        return checkpointed

    def atoms(self, program: Program) -> Sequence[Atom]:
        """Return the calls whose values need not be saved."""
        return [Atom(self.name, regions=(index,)) for index in program.calls]

    def planned(
        self, program: Program, plan: Plan, given_up: Sequence[Atom], kept: Sequence[Atom]
    ) -> Plan:
        """Checkpoint calls, without functions that are called only within others of these."""
        called = {region for atom in given_up for region in atom.regions}
        every = replace(plan, calls=tuple(sorted(called)))
        calls = tuple(at for at in every.calls if every.sites(at, program.regions[at]))
        return replace(plan, calls=calls)

    def edit(self, editing: Editing) -> None:
        """Change the calls of each function of the plan."""
        regions, chosen = editing.program.regions, editing.plan.calls
        for index in chosen:
            region = regions[index]
            sites = editing.plan.sites(index, region)
            has_dots = index in editing.plan.with_dots
            how = _words(region, has_dots)
            depth = editing.plan.depth(index)
            if depth is None:
                for site in sites:
                    editing.attempt(site, how, _edit, region, site, _Calls(has_dots))
                continue
            first = first_calls(region.order, depth.count)
            for site, count in ((one, first[one]) for one in sites if one in first):
                words = how if count is None else f"in the first {count} iterations {how}"
                if count is not None and depth.with_dots:
                    words += f", and in the others {_words(region, has_dots=True)}"
                calls = _Calls(has_dots, count, depth.with_dots)
                editing.attempt(site, words, _edit, region, site, calls)
            for site in sites if depth.with_dots else ():
                if site not in first:
                    how = _words(region, has_dots=True)
                    editing.attempt(site, how, _edit, region, site, _Calls(has_dots=True))


def _words(region: Region, has_dots: bool) -> str:
    policy = f" with policy={POLICY.format(jax='jax')}" if has_dots else ""
    form = LINES if region.is_stretch else FORMS[region.lift]
    return f"checkpoint, as {form}{policy}"


class _Calls(NamedTuple):
    """What the calls of one expression become."""

    has_dots: bool
    """Whether they save their products."""
    first: int | None = None
    """How many of them are so, in the first iterations of a loop; None for all."""
    with_dots: bool = False
    """Whether the others are checkpoints that save their products."""


def _edit(source: Source, region: Region, site: Site, calls: _Calls) -> None:
    if region.is_stretch:
        _edit_statements(source, region, site, calls)
        return
    node = source.find(site)
    if not isinstance(node, ast.Call):
        raise Refused("it is not a call")
    if _is_passed_on(source, node, region.function.rpartition(".")[2]):
        raise Refused(f"{ast.unparse(node.func)} may call what it is passed several times")
    policy, test = _options(source, node, calls)
    _checkpoint_call(source, node, region, site, policy, test)


def _options(source: Source, node: ast.AST, calls: _Calls) -> tuple[str, str]:
    """Return the policy of a checkpoint, with a comma in front, and when there is one, or ''."""
    test = "" if calls.first is None else f"{counter(source, node)} < {calls.first}"
    if not calls.has_dots and not (test and calls.with_dots):
        return "", test
    policy = POLICY.format(jax=source.imported("jax", "", [node]))
    if test and calls.with_dots:
        policy, test = f"None if {test} else {policy}", ""
    return f", policy={policy}", test


def _edit_statements(source: Source, region: Region, site: Site, calls: _Calls) -> None:
    """Put statements into a function before them, and call its checkpoint in their place."""
    stretch = stretch_at(source.tree, site.line, site.end_line)
    statements = stretch.statements
    first = source.span(statements[0])[0]
    lines = Lines(source, statements)
    space = source.raw[lines.start : first].decode()
    check_lines(source, statements, space)
    policy, test = _options(source, statements[0], calls)
    checkpoint = _function(source, statements[0], region, is_filtered=False)
    name = source.new("layer" if stretch.is_loop else "part")
    if region.lift == "linen" and len(region.held) > 1:
        raise Refused("nn.remat accepts one module, and these lines have several")
    arrays = [one for one in stretch.reads if one in region.arrays and one not in region.held]
    items = [source.new("item") for _ in stretch.taken]
    for one, item in zip(stretch.taken, items, strict=True):
        source.replace(source.span(one), partial(_as_text, item))
    parameters = ", ".join([*region.held, *arrays, *items])
    arguments = ", ".join([*region.held, *arrays, *map(source.of, stretch.taken)])
    results = ", ".join(stretch.writes)
    call = f"{checkpoint}({name}{policy})"
    call = f"({call} if {test} else {name})" if test else call
    # A function in a block has an empty line after it, and none of two next to each other touch.
    after = source.raw[lines.end :].lstrip(b"\r\n")
    is_last = not after.startswith(space.encode()) or after[len(space) :][:1].isspace()
    has_space = len(source.raw) - lines.end - len(after) > len(source.line_end)

    def make(render: Render) -> str:
        body = source.line_end.join(lines.text(one, render, ()) for one in statements)
        parts = [
            f"{space}def {name}({parameters}):",
            indented(body),
            f"{space}{UNIT}return {results}",
            "",
            f"{space}{results} = {call}({arguments})",
            *([] if is_last or has_space else [""]),
        ]
        return source.line_end.join(parts)

    source.replace((lines.start, lines.end), make, rank=1)


def _as_text(text: str, _render: Render) -> str:
    return text


def _is_passed_on(source: Source, node: ast.Call, name: str) -> bool:
    """Whether a call passes a function on, as `reduce(block, ws, x)`: others call it there."""
    if _name(node.func) == name:
        return False
    for inner in (one for value in _values(node) for one in ast.walk(value)):
        parent = source.parents[inner]
        is_called = isinstance(parent, ast.Call) and parent.func is inner
        if _name(inner) == name and not is_called:
            return True
    return False


def _name(node: ast.AST) -> str | None:
    """Return what a function is called at the end of its qualified name."""
    if isinstance(node, ast.Lambda):
        return "<lambda>"
    name: str | None = getattr(node, "id", getattr(node, "attr", None))
    return name


def _values(node: ast.Call) -> list[ast.expr]:
    """Return what a call is passed."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _checkpoint_call(
    source: Source, node: ast.Call, region: Region, site: Site, policy: str, test: str
) -> None:
    """Change a call of a region into a checkpoint, if a test is true.

    Arguments that hold calls are evaluated outside: inside, their values would be computed again.

    Raises:
        Refused: it cannot be done safely.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            raise Refused("the call assigns, awaits or yields")
        if isinstance(inner, ast.Call) and not inner.args and _is_name(inner.func, "super"):
            raise Refused("super() has no arguments in a function of its own")
    if isinstance(next(iter(source.scopes(node)), None), ast.ClassDef):
        raise Refused("a function does not see the names of a class's body")
    modules = _modules(source, node, region)
    plain = direct(source, node, region, site)
    is_filtered = plain is not None and region.owner == "equinox"
    function = _function(source, node, region, is_filtered=is_filtered)
    if plain is not None:

        def of_function(render: Render) -> str:
            return plain.render(source, function, policy, test, render)

        source.replace(source.span(node), of_function, rank=1)
        return
    hoisted = [value for value in _values(node) if _has_call(value) and value not in modules]
    if any(isinstance(value, ast.Starred) for value in hoisted):
        raise Refused("an argument with a star holds a call")
    inner_names = _names(source, modules)
    outer = {value: source.free(f"fit_{at}") for at, value in enumerate(hoisted, len(modules))}
    renamed = sorted((source.span(value), name) for value, name in (inner_names | outer).items())
    spans = dict(zip(inner_names.values(), map(source.span, modules), strict=True))
    start, end = source.span(node)

    def make(render: Render) -> str:
        body, at = [], start
        for (first, last), name in renamed:
            body += [render(at, first), name]
            at = last
        body.append(render(at, end))
        head = f"lambda {', '.join(spans)}" if spans else "lambda"
        arguments = ", ".join(render(*span) for span in spans.values())
        core = f"{function}({head}: {''.join(body)}{policy})({arguments})"
        if outer:
            arguments = ", ".join(render(*source.span(value)) for value in outer)
            core = f"(lambda {', '.join(outer.values())}: {core})({arguments})"
        return f"({core} if {test} else {render(start, end)})" if test else core

    source.replace((start, end), make, rank=1)


def _function(source: Source, node: ast.AST, region: Region, *, is_filtered: bool) -> str:
    """Return how the file names the checkpoint that a call needs."""
    if is_filtered:
        return f"{source.imported('equinox', '', [node])}.filter_checkpoint"
    if not region.lift:
        return f"{source.imported('jax', '', [node])}.checkpoint"
    return f"{source.imported(*_REMATS[region.lift], [node])}.remat"


def _names(source: Source, modules: Sequence[ast.expr]) -> dict[ast.expr, str]:
    """Return the parameter for each module: a name keeps it, so that the call stays as it is."""
    return {
        value: value.id if isinstance(value, ast.Name) else source.free(f"fit_{at}")
        for at, value in enumerate(modules)
    }


def _modules(source: Source, node: ast.Call, region: Region) -> list[ast.expr]:
    """Return the expressions of a call that are modules with state, each name once.

    Raises:
        Refused: some are not to be seen in the call.
    """
    if not region.held:
        return []
    if "" in region.held:
        raise Refused(f"{region.function} has modules in its closure, which cannot be arguments")
    names, expressions = list(region.parameters), []
    *_, owner, name = ["", *region.function.split(".")]
    if owner and owner != "<locals>":
        receiver = _receiver(source, node, name)
        if receiver is not None:
            expressions += [receiver] if names[0] in region.held else []
            names = names[1:]
    for held in region.held:
        if held in region.parameters and held not in names:
            continue
        expressions.append(_argument(node, names, held))
    if region.lift == "linen" and len(expressions) > 1:
        raise Refused("nn.remat accepts one module, and the call has several")
    alike: dict[str, ast.expr] = {}
    for value in expressions:
        alike.setdefault(ast.dump(value), value)
    if len(alike) < len(expressions) and not all(
        isinstance(value, ast.Name) for value in expressions
    ):
        raise Refused("a module occurs twice in the call")
    return list(alike.values())


def _receiver(source: Source, node: ast.Call, method: str) -> ast.expr | None:
    """Return the object whose method a call runs; None if it is the first argument.

    Raises:
        Refused: the method is called by another name.
    """
    function = node.func
    is_named = isinstance(function, ast.Attribute) and function.attr == method
    if isinstance(function, ast.Attribute) and is_named:
        bound = None
        if isinstance(function.value, ast.Name):
            bound = source.binding(function.value.id, function.value)
        return None if isinstance(bound, ast.ClassDef) else function.value
    if method != "__call__":
        raise Refused(f"the call does not show the module whose method {method} it runs")
    return function


def _argument(node: ast.Call, names: Sequence[str], name: str) -> ast.expr:
    """Return the argument for a parameter.

    Raises:
        Refused: the call does not show it.
    """
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    at = names.index(name) if name in names else len(node.args)
    if at < len(node.args) and not any(
        isinstance(value, ast.Starred) for value in node.args[: at + 1]
    ):
        return node.args[at]
    raise Refused(f"the call does not show {name}, which holds modules")


def _has_call(node: ast.expr) -> bool:
    """Whether an argument computes something: a call, or an operation on arrays."""
    kinds = (ast.Call, ast.BinOp, ast.Subscript)
    return any(isinstance(inner, kinds) for inner in ast.walk(node)) and not isinstance(
        node, ast.Lambda
    )


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
