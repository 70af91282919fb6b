"""Calls of JAX's and flax's transforms in a file, and what a plan changes in them.

put_policy  at the scan: around its body, or in the checkpoint that is there
unwrap      a checkpoint inside a scan's body goes: the policy at the scan decides
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.plans import Region, Site
from bufdb.fitting.source import Source

BODY = {
    "jax.lax.scan": (0, "f"),
    "jax.lax.map": (0, "f"),
    "jax.lax.fori_loop": (2, "body_fun"),
}
"""By what runs a scan, the place and the name of its body among the arguments."""
CHECKPOINTS = (
    "jax.checkpoint", "jax.remat", "jax.ad_checkpoint.checkpoint", "jax.ad_checkpoint.remat",
)  # fmt: skip
LINEN = ("flax.linen", "flax.linen.transforms")
LINEN_SCANS = tuple(f"{module}.scan" for module in LINEN)
LINEN_REMATS = tuple(f"{module}.{name}" for module in LINEN for name in ("remat", "checkpoint"))
NNX_SCANS = ("flax.nnx.scan",)
NNX_REMATS = ("flax.nnx.remat",)
REMATS = (*CHECKPOINTS, *LINEN_REMATS, *NNX_REMATS)
JITS = ("jax.jit", "flax.nnx.jit", "jax.pjit", "jax.experimental.pjit.pjit")
FILTER_JITS = ("equinox.filter_jit",)
PARTIALS = ("functools.partial",)
NO_UPDATES = ", graph_updates=False"
"""Option of `nnx.remat` with which parameters are no results, which a scan would stack."""
Policy = Callable[[str], str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in the source: a call with the function, or a decorator."""

    node: ast.expr
    inner: ast.expr | None
    """What is checkpointed; None for a decorator."""
    name: str = ""
    """The name that it is bound to; '' where it is used at once."""

    def dotted(self, source: Source) -> str:
        """Return the dotted name of what is called; '' for a decorator without a call."""
        return source.dotted(self.node.func) if isinstance(self.node, ast.Call) else ""


# -- what is there ---------------------------------------------------------------------------------


def function_at(source: Source, site: Site) -> Function:
    """Return the function whose `def`, or a decorator of it, is on a line.

    Raises:
        Refused: there is none.
    """
    functions = (one for one in ast.walk(source.tree) if isinstance(one, Function))
    for function in functions:
        if site.line in (function.lineno, *(one.lineno for one in function.decorator_list)):
            return function
    raise Refused("no function is at this line")


def indent(source: Source, node: ast.stmt) -> str:
    """Return the text before a statement on its line: white space if it begins the line."""
    start = source.offset(node.lineno, 0)
    return source.raw[start : source.offset(node.lineno, node.col_offset)].decode()


def transform(source: Source, node: ast.expr, names: Iterable[str]) -> ast.Call | None:
    """Return a call of one of some transforms; a partial of one counts."""
    if not isinstance(node, ast.Call):
        return None
    if source.dotted(node.func) in names:
        return node
    is_partial = source.dotted(node.func) in PARTIALS and bool(node.args)
    return node if is_partial and source.dotted(node.args[0]) in names else None


def _checkpoint(source: Source, node: ast.expr, name: str = "") -> Checkpoint | None:
    """Return the checkpoint that an expression is, or the name of one; None if it is none."""
    call = transform(source, node, REMATS)
    if call is not None:
        if not call.args or source.dotted(call.func) in PARTIALS:
            return None
        return Checkpoint(call, call.args[0], name)
    if not isinstance(node, ast.Name):
        return None
    bound = source.binding(node.id, node)
    if isinstance(bound, ast.Assign):
        return _checkpoint(source, bound.value, node.id)
    if isinstance(bound, Function | ast.ClassDef):
        for decorator in bound.decorator_list:
            is_bare = source.dotted(decorator) in REMATS
            if is_bare or transform(source, decorator, REMATS) is not None:
                return Checkpoint(decorator, None, node.id)
    return None


def _argument(call: ast.Call, place: int, name: str) -> ast.expr:
    """Return an argument by its place or its name."""
    if any(isinstance(value, ast.Starred) for value in call.args[: place + 1]):
        raise Refused("its arguments come from a star")
    if len(call.args) > place:
        return call.args[place]
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    raise Refused(f"it has no argument {name}")


# -- a policy at a scan ----------------------------------------------------------------------------


def put_policy(
    source: Source, node: ast.Call, region: Region, policy: Policy, has_checkpoint: bool
) -> None:
    """Give the body of a scan a policy.

    Args:
        source: the file.
        node: the call that runs the scan.
        region: of the scan.
        policy: its text, from the name of the module jax.
        has_checkpoint: whether the body is checkpointed as it is written.
    """
    dotted = source.dotted(node.func)
    if dotted in BODY:
        body = _argument(node, *BODY[dotted])
        checkpoint = _checkpoint(source, body)
        if checkpoint is None and has_checkpoint:
            raise Refused("the checkpoint of its body is not found in the file")
        if checkpoint is None:
            _wrap(source, body, "jax.checkpoint", policy)
        else:
            _renew(source, checkpoint, body, policy)
        return
    scan = _lifted(source, node, region)
    if scan is None:
        raise Refused("no scan of JAX or flax is found in the file for this call")
    if isinstance(scan, Function):
        _decorate(source, scan, NNX_SCANS, policy)
        return
    target = _argument(scan, 0, "f")
    checkpoint = _checkpoint(source, target)
    if checkpoint is not None:
        _renew(source, checkpoint, target, policy)
    elif has_checkpoint:
        raise Refused("the checkpoint of its body is not found in the file")
    elif transform(source, scan, NNX_SCANS) is not None:
        _wrap(source, target, "flax.nnx.remat", policy)
    else:
        _linen(source, scan, target, policy)


def in_two(source: Source, node: ast.Call, count: int, policies: tuple[Policy, Policy]) -> None:
    """Run a scan as two, by a function that is put into the file.

    Args:
        source: the file.
        node: the call that runs the scan.
        count: iterations of the first one.
        policies: of the first one, and of the other.

    Raises:
        Refused: it is not a plain call of `jax.lax.scan` over arrays.
    """
    is_plain = len(node.args) == 3 and not any(isinstance(one, ast.Starred) for one in node.args)
    if source.dotted(node.func) != "jax.lax.scan" or not is_plain or node.keywords:
        raise Refused("it is not jax.lax.scan(body, init, xs)")
    if isinstance(node.args[2], ast.Constant):
        raise Refused("it scans no arrays")
    body = node.args[0]
    checkpoint = _checkpoint(source, body)
    if checkpoint is not None:
        inner = checkpoint.inner
        is_seen = inner is not None and checkpoint.dotted(source) in CHECKPOINTS
        is_here = checkpoint.node is body or (
            isinstance(inner, ast.Name) and source.binding(inner.id, body) is not None
        )
        if inner is None or not is_seen or not is_here:
            raise Refused("the checkpoint of its body is not around it")
        text = source.of(inner)
        source.replace(source.span(body), lambda render: text)
    jax = source.imported("jax", "", [node])
    texts = ", ".join(policy(jax) for policy in policies)
    name = source.helper("scan_in_two", _IN_TWO, node)
    function = source.span(node.func)
    source.replace(function, lambda render: name)
    end = source.span(node)[1] - 1
    source.replace((end, end), lambda render: f", {count}, ({texts})")


_IN_TWO = '''\
def {name}(body, init, xs, count, policies):
    """Scan the first iterations with one policy of checkpoints, the others with another."""
    first, rest = ({jax}.checkpoint(body, policy=one, prevent_cse=False) for one in policies)
    carry, ys = {jax}.lax.scan(first, init, {jax}.tree.map(lambda x: x[:count], xs))
    carry, more = {jax}.lax.scan(rest, carry, {jax}.tree.map(lambda x: x[count:], xs))
    return carry, {jax}.tree.map(lambda a, b: {jax}.numpy.concatenate([a, b]), ys, more)
'''


def _lifted(source: Source, node: ast.Call, region: Region) -> ast.Call | Function | None:
    """Return the `nn.scan` or `nnx.scan` whose result a call runs, or the function it decorates."""
    names = (*LINEN_SCANS, *NNX_SCANS)
    function = node.func
    for _ in range(4):
        lifted = transform(source, function, names)
        if lifted is not None and lifted.args:
            return lifted
        if isinstance(function, ast.Call):
            function = function.func
            continue
        bound = _bound(source, function)
        if isinstance(bound, Function) and any(
            source.dotted(one) in names or transform(source, one, names)
            for one in bound.decorator_list
        ):
            return bound
        if not isinstance(bound, ast.Assign):
            break
        function = bound.value
    # By the name of what is scanned, if one scan of the file has it.
    calls = [one for one in ast.walk(source.tree) if isinstance(one, ast.Call) and one.args]
    scans = [one for one in calls if transform(source, one, names) is not None]
    of_region = [
        one for one in scans if region.module and region.module in _words(source, one.args[0])
    ]
    return of_region[0] if len(of_region) == 1 else None


def _bound(source: Source, node: ast.expr) -> ast.AST | None:
    """Return what binds a name, or an attribute of self."""
    if isinstance(node, ast.Name):
        return source.binding(node.id, node)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        bound = [
            one
            for one in ast.walk(source.tree)
            if isinstance(one, ast.Assign)
            and len(one.targets) == 1
            and isinstance(one.targets[0], ast.Attribute)
            and source.class_of(one) is source.class_of(node)
            and ast.dump(one.targets[0].value) == ast.dump(node.value)
            and one.targets[0].attr == node.attr
        ]
        return bound[0] if len(bound) == 1 else None
    return None


def _words(source: Source, node: ast.expr) -> set[str]:
    """Return the names in an expression, and in what these are bound to."""
    words = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    for one in list(ast.walk(node)):
        if isinstance(one, ast.Name):
            bound = source.binding(one.id, one)
            if isinstance(bound, ast.Assign):
                inner = ast.walk(bound.value)
                words |= {two.id for two in inner if isinstance(two, ast.Name)}
    return words


def _name_of(source: Source, transform: str, at: ast.AST) -> str:
    """Return how the file names a transform, such as `nn.remat`."""
    module, _, name = transform.rpartition(".")
    if module == "jax":
        return f"{source.imported('jax', '', [at])}.{name}"
    parent, _, last = module.rpartition(".")
    return f"{source.imported(parent, last, [at])}.{name}"


def _options(source: Source, at: ast.AST, policy: Policy) -> str:
    jax = source.imported("jax", "", [at])
    return f"policy={policy(jax)}, prevent_cse=False"


def _wrap(source: Source, body: ast.expr, transform: str, policy: Policy) -> None:
    name, options = _name_of(source, transform, body), _options(source, body, policy)
    if transform in NNX_REMATS:
        options += NO_UPDATES
    source.wrap(body, f"{name}(", f", {options})", rank=1)


def _renew(source: Source, checkpoint: Checkpoint, used: ast.expr, policy: Policy) -> None:
    """Replace the policy of a checkpoint that is there."""
    if checkpoint.name and source.loads(checkpoint.name, checkpoint.node) > 1:
        _around(source, checkpoint, used, policy)
        return
    options = _options(source, checkpoint.node, policy)
    if not isinstance(checkpoint.node, ast.Call):
        partial = source.imported("functools", "partial", [checkpoint.node])
        source.wrap(checkpoint.node, f"{partial}(", f", {options})")
        return
    call = checkpoint.node
    start, end = source.span(call)
    kept: list[ast.expr | ast.keyword] = [*call.args]
    kept += [one for one in call.keywords if one.arg not in ("policy", "prevent_cse")]
    if any(one.arg is None for one in call.keywords):
        raise Refused("the options of its checkpoint come from two stars")
    spans = [whole(source, one) for one in kept]
    head = source.span(call.func)[1]

    def make(render: Render) -> str:
        arguments = ", ".join([*(render(*span) for span in spans), options])
        return f"{render(start, head)}({arguments})"

    source.replace((start, end), make, rank=1)


def _around(source: Source, checkpoint: Checkpoint, used: ast.expr, policy: Policy) -> None:
    """Checkpoint again what a checkpoint is of, which is used elsewhere, too."""
    inner = checkpoint.inner
    is_seen = isinstance(inner, ast.Name) and source.binding(inner.id, used) is not None
    if not is_seen or inner is None or checkpoint.dotted(source) not in CHECKPOINTS:
        raise Refused(f"its checkpoint {checkpoint.name} is used elsewhere in the file, too")
    options, name = _options(source, used, policy), _name_of(source, "jax.checkpoint", used)
    text = f"{name}({source.of(inner)}, {options})"
    source.replace(source.span(used), lambda render: text)


def whole(source: Source, node: ast.expr | ast.keyword) -> tuple[int, int]:
    """Return the offsets in bytes of an argument, with its name if it has one."""
    if isinstance(node, ast.keyword):
        start = source.offset(node.lineno, node.col_offset)
        return start, source.span(node.value)[1]
    return source.span(node)


def _decorate(
    source: Source, function: Function, after: Iterable[str], policy: Policy, inner: str = ""
) -> None:
    """Insert a checkpoint of flax after the decorator that scans a function."""
    names = tuple(after)
    for decorator in function.decorator_list:
        if source.dotted(decorator) in names or transform(source, decorator, names) is not None:
            options = _options(source, decorator, policy) + NO_UPDATES
            name = _name_of(source, "flax.nnx.remat", decorator)
            space = indent(source, function)
            line = (decorator.end_lineno or decorator.lineno) + 1
            for other in function.decorator_list:
                if source.dotted(other) in REMATS or transform(source, other, REMATS) is not None:
                    raise Refused("the function has a checkpoint as a decorator already")
            source.insert_line(line, f"{space}@{name}({options})")
            return
    raise Refused("no decorator scans the function")


def _linen(source: Source, scan: ast.Call, target: ast.expr, policy: Policy) -> None:
    """Checkpoint the module of an `nn.scan`.

    `nn.remat` of a class gives a class of another name, which names the parameters of a module
    that is given no name; there the method is checkpointed instead.
    """
    if _is_named(source, scan) or not _is_class(source, target):
        _wrap(source, target, "flax.linen.remat", policy)
        return
    if not isinstance(target, ast.Name):
        raise Refused("nn.remat would change the names of the parameters; name= keeps them")
    bound = source.binding(target.id, target)
    if not isinstance(bound, ast.ClassDef) or source.loads(target.id, target) > 1:
        raise Refused(
            f"nn.remat would change the names of the parameters, and {target.id} is used elsewhere"
        )
    methods = [one for one in bound.body if isinstance(one, Function) and one.name == "__call__"]
    if len(methods) != 1:
        raise Refused(f"{target.id} has no method __call__ in the file")
    (method,) = methods
    first = method.decorator_list[0].lineno if method.decorator_list else method.lineno
    remat, options = _name_of(source, "flax.linen.remat", method), _options(source, method, policy)
    partial = source.imported("functools", "partial", [method])
    source.insert_line(first, f"{indent(source, method)}@{partial}({remat}, {options})")


def _is_class(source: Source, target: ast.expr) -> bool:
    return not isinstance(target, ast.Name) or isinstance(
        source.binding(target.id, target), ast.ClassDef
    )


def _is_named(source: Source, scan: ast.Call) -> bool:
    """Whether the module that a scan makes has a name of its own: `name=`, or an attribute."""
    made: list[ast.AST] = []
    parent = source.parents[scan]
    if isinstance(parent, ast.Call) and parent.func is scan:
        made = [parent]
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0].id
        made = [
            one
            for one in ast.walk(source.tree)
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name
        ]
    return bool(made) and all(
        isinstance(one, ast.Call)
        and (
            any(keyword.arg == "name" for keyword in one.keywords)
            or (
                isinstance(above := source.parents[one], ast.Assign)
                and isinstance(above.targets[0], ast.Attribute)
            )
        )
        for one in made
    )


# -- checkpoints inside ----------------------------------------------------------------------------


def unwrap(source: Source, node: ast.Call, count: int) -> None:
    """Remove the checkpoint whose result a call runs.

    Args:
        source: the file.
        node: the call.
        count: calls of checkpoints in the region, in this file.
    """
    function = node.func
    module = function.func if isinstance(function, ast.Call) else None
    if module is not None and transform(source, module, LINEN_REMATS) is not None:
        raise Refused("without nn.remat the names of the parameters would change")
    checkpoint = _checkpoint(source, function)
    if checkpoint is None:
        raise Refused("the checkpoint is not found in the file")
    if any(edit.start == source.span(checkpoint.node)[0] for edit in source.edits):
        return  # another call of it has removed it
    if checkpoint.name and source.loads(checkpoint.name, checkpoint.node) > count:
        raise Refused(f"its checkpoint {checkpoint.name} is used elsewhere in the file, too")
    if checkpoint.inner is None:
        last = checkpoint.node.end_lineno or checkpoint.node.lineno
        source.drop_lines(checkpoint.node.lineno, last)
        return
    inner = checkpoint.inner
    span = source.span(inner)
    is_simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call) or bool(checkpoint.name)

    def make(render: Render) -> str:
        return render(*span) if is_simple else f"({render(*span)})"

    source.replace(source.span(checkpoint.node), make, rank=1)
