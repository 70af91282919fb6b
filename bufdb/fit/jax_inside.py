"""Parts of JAX that `bufdb fit` uses and JAX does not promise to keep.

Four things: where an equation was written (frames with columns), how it is bound again, which call
of a user's function it belongs to (the stack of names), and `jax.vjp`, which every gradient goes
through. `probe` tries each on a small program, so that a JAX in which one has changed is refused
with the reason instead of giving wrong plans.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.errors import BufdbError
from bufdb.fit.counting import is_dropped, is_literal
from bufdb.fit.plans import Site

# -- Files of the user -----------------------------------------------------------------------------

_LIBRARIES = ("site-packages", "dist-packages")
_LIBRARY_ROOTS = ("jax", "jaxlib", "flax", "optax", "equinox", "haiku", "numpy", "bufdb")
"""Packages that are libraries also when they are installed from a checkout."""
_GENERATOR = 0x20
"""Flag of the code of a generator, whose frame comes and goes."""


@cache
def _library_folders() -> tuple[str, ...]:
    folders = [sysconfig.get_path("stdlib"), str(Path(os.__file__).parent)]
    for name in _LIBRARY_ROOTS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            folders.append(str(Path(file).parent))
    return tuple(folder + os.sep for folder in folders)


@dataclass(frozen=True)
class Files:
    """Which files are the user's."""

    own: str = ""
    """Folder that counts as the user's although it is installed; '' for none."""
    _known: dict[str, bool] = field(default_factory=dict, compare=False)

    def has(self, name: str) -> bool:
        """Return whether a file is the user's, so that it can be changed."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._judged(name)
        return found

    def _judged(self, name: str) -> bool:
        if name.startswith("<"):  # not a file
            return False
        if self.own and name.startswith(self.own + os.sep):
            return True
        is_library = any(part in _LIBRARIES for part in Path(name).parts)
        return not is_library and not name.startswith(_library_folders())


# -- Where an equation was written -----------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """A frame of the user's code: an expression that was being evaluated, and its function."""

    site: Site
    first_line: int
    """Line of the function's `def`, or of its first decorator."""


def frames(eqn: Any, files: Files) -> list[Frame]:
    """Return the user's frames of an equation, innermost first."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return []
    codes, instructions = traceback.raw_frames()
    return [
        _frame(code, at)
        for code, at in zip(codes, instructions, strict=True)
        if files.has(code.co_filename)
    ]


def site_of(eqn: Any, files: Files) -> Site | None:
    """Return the innermost expression of the user's in which an equation was made."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    codes, instructions = traceback.raw_frames()
    for code, at in zip(codes, instructions, strict=True):
        if files.has(code.co_filename):
            return _frame(code, at).site
    return None


@cache
def _frame(code: CodeType, instruction: int) -> Frame:
    positions = next(itertools.islice(code.co_positions(), instruction // 2, None))
    line, end_line, column, end_column = (-1 if value is None else value for value in positions)
    site = Site(code.co_filename, line, column, end_line, end_column, code.co_qualname)
    return Frame(site, code.co_firstlineno)


# -- Equations, evaluated again --------------------------------------------------------------------

_CALL = "bufdb-call-"
"""Beginning of the names that number calls."""
GRADIENT = "bufdb-gradient-"
"""Beginning of the names that number gradients."""


def bind(eqn: Any, inputs: Sequence[Any], params: dict[str, Any] | None = None) -> list[Any]:
    """Return the outputs of an equation for other inputs, made where it was made."""
    given = eqn.primitive.get_bind_params(eqn.params if params is None else params)
    functions, options = given if isinstance(given, tuple) else ((), given)
    with context(eqn):
        found = eqn.primitive.bind(*functions, *inputs, **options)
    return list(found) if eqn.primitive.multiple_results else [found]


@contextlib.contextmanager
def context(eqn: Any) -> Iterator[None]:
    """Make what is bound within the block appear where an equation was made."""
    source_info_util = importlib.import_module("jax._src.source_info_util")
    own = eqn.source_info.name_stack
    kept = type(own)(tuple(one for one in own.stack if not _is_call(getattr(one, "name", ""))))
    names = source_info_util.current_name_stack() + kept
    traceback = eqn.source_info.traceback
    with source_info_util.user_context(traceback, name_stack=names), eqn.ctx.manager:
        yield


def _is_call(name: str) -> bool:
    return name.startswith(_CALL)


def evaluate(
    eqns: Sequence[Any],
    env: dict[Any, Any],
    rule: Callable[[Any, list[Any]], list[Any]],
) -> None:
    """Evaluate equations in an environment, each by a rule."""
    for eqn in eqns:
        outputs = rule(eqn, [value(var, env) for var in eqn.invars])
        for var, output in zip(eqn.outvars, outputs, strict=True):
            if not is_dropped(var):
                env[var] = output


def named(array: Any, name: str) -> Any:
    """Return an array with a name for policies."""
    return importlib.import_module("jax.ad_checkpoint").checkpoint_name(array, name)


def value(var: Any, env: dict[Any, Any]) -> Any:
    """Return the value of a variable or of a literal."""
    return var.val if is_literal(var) else env[var]


def without_dead_code(jaxpr: Any) -> Any:
    """Return a jaxpr without equations that no output takes, also in what is nested."""
    partial_eval = importlib.import_module("jax._src.interpreters.partial_eval")
    found = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return found[0]


def source_of(jaxpr: Any) -> tuple[str, str, int] | None:
    """Return name, file and line of the function that a jaxpr was traced from."""
    info = getattr(getattr(jaxpr, "debug_info", None), "func_src_info", None) or ""
    name, at, place = info.rpartition(" at ")
    file, colon, line = place.rpartition(":")
    return (name, file, int(line)) if at and colon and line.isdigit() else None


# -- Calls of the user's functions, numbered -------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call of a user's function while it was traced."""

    site: Site
    """The expression that calls."""
    name: str
    """Qualified name of the function."""
    file: str
    first_line: int


class Calls:
    """The calls of the user's functions; equations have their numbers in the stack of names."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: list[Call] = []

    def numbered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that numbers the calls that it makes, of any depth."""
        jax = jax_module()
        open_calls: list[tuple[FrameType, Any]] = []

        def observe(frame: FrameType, event: str, _argument: Any) -> None:
            if event == "call":
                call = self._call(frame)
                if call is not None:
                    scope = jax.named_scope(f"{_CALL}{len(self._known)}")
                    self._known.append(call)
                    scope.__enter__()
                    open_calls.append((frame, scope))
            elif event == "return" and open_calls and open_calls[-1][0] is frame:
                open_calls.pop()[1].__exit__(None, None, None)

        def run(*args: Any, **kwargs: Any) -> Any:
            before = sys.getprofile()
            sys.setprofile(observe)
            try:
                return function(*args, **kwargs)
            finally:
                sys.setprofile(before)

        return run

    def _call(self, frame: FrameType) -> Call | None:
        code = frame.f_code
        is_function = not code.co_name.startswith("<") or code.co_name == "<lambda>"
        if not is_function or code.co_flags & _GENERATOR or not self._files.has(code.co_filename):
            return None
        caller = frame.f_back
        while caller is not None and not self._files.has(caller.f_code.co_filename):
            caller = caller.f_back
        if caller is None:
            return None
        site = _frame(caller.f_code, caller.f_lasti).site
        return Call(site, code.co_qualname, code.co_filename, code.co_firstlineno)

    def of(self, eqn: Any) -> list[tuple[int, Call]]:
        """Return the calls in which an equation was made with their numbers, outermost first."""
        found = []
        for part in eqn.source_info.name_stack.stack:
            name = getattr(part, "name", "")
            if _is_call(name):
                number = int(name.removeprefix(_CALL))
                found.append((number, self._known[number]))
        return found


# -- Every gradient --------------------------------------------------------------------------------

Loss = Callable[..., Any]
Changed = Callable[[Any, Sequence[Any]], list[Any]]
"""Receives a loss as a closed jaxpr, and flat inputs; returns its flat outputs."""


@contextlib.contextmanager
def gradients(change: Callable[[Any, int], Changed], calls: Calls | None) -> Iterator[None]:
    """Within the block, differentiate what `change` makes of each loss in its place.

    `change` receives the loss as a closed jaxpr, and how many of its outputs
    are differentiated. The user's loss runs once; a gradient within a loss is part of it.

    Invariant: what is replaced in JAX is put back at the end of the block.
    """
    jax = jax_module()
    api: Any = importlib.import_module("jax._src.api")
    original = api.vjp
    depth = 0

    def vjp(fun: Loss, *primals: Any, has_aux: bool = False, **options: Any) -> Any:
        nonlocal depth
        if depth:
            return original(fun, *primals, has_aux=has_aux, **options)
        depth += 1
        try:
            changed = _flat(jax, fun, primals, has_aux, change, calls)
            return original(changed, *primals, has_aux=has_aux, **options)
        finally:
            depth -= 1

    was = jax.vjp
    api.vjp = jax.vjp = vjp
    try:
        yield
    finally:
        api.vjp, jax.vjp = original, was


def _flat(
    jax: Any,
    fun: Loss,
    primals: Sequence[Any],
    has_aux: bool,
    change: Callable[[Any, int], Changed],
    calls: Calls | None,
) -> Loss:
    """Return a loss in whose place `change` puts another, traced for its arguments."""
    flat, tree = jax.tree.flatten(primals)
    outside: dict[int, Any] = {}
    out_tree = None
    main = 0

    def flat_fun(*leaves: Any) -> list[Any]:
        nonlocal out_tree, main
        out = (fun if calls is None else calls.numbered(fun))(*jax.tree.unflatten(tree, leaves))
        main = len(jax.tree.leaves(out[0] if has_aux else out))
        found, out_tree = jax.tree.flatten(out)
        # What is auxiliary need not be an array.
        outside.update((at, leaf) for at, leaf in enumerate(found) if not _is_array(jax, leaf))
        return [leaf for at, leaf in enumerate(found) if at not in outside]

    closed = jax.make_jaxpr(flat_fun)(*flat)
    run = change(closed, main)

    def changed(*given: Any) -> Any:
        outputs = iter(run(closed, jax.tree.leaves(given)))
        assert out_tree is not None
        leaves = [
            outside[at] if at in outside else next(outputs) for at in range(out_tree.num_leaves)
        ]
        return jax.tree.unflatten(out_tree, leaves)

    return changed


def _is_array(jax: Any, leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex | jax.Array) or hasattr(leaf, "dtype")


# -- What JAX has, tried ---------------------------------------------------------------------------


def probe() -> None:
    """Try all of this module on a small program.

    Raises:
        BufdbError: this JAX, or this Python, lacks one of them; the message says which.
    """
    jax = jax_module()
    try:
        _try(jax)
    except _Missing as error:
        reason = str(error)
    except Exception as error:  # whatever a JAX of another kind raises
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    else:
        return
    version = ".".join(map(str, sys.version_info[:2]))
    raise BufdbError(
        f"bufdb fit does not know the inside of JAX {jax.__version__} on Python {version}: {reason}"
    )


class _Missing(Exception):
    """What is not as expected."""


def _try(jax: Any) -> None:
    """Try to find, number, name and bind the equations of a small gradient.

    Raises:
        _Missing: something is not as expected.
    """
    files, seen = Files(str(Path(__file__).parent)), []
    calls = Calls(files)

    def block(x: Any) -> Any:
        return jax.numpy.sin(x)

    def loss(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return named(carry * 2.0, "probe"), None

        return jax.lax.scan(jax.checkpoint(body), block(x), None, length=2)[0]

    def change(closed: Any, main: int) -> Changed:
        seen.append((closed, main))

        def run(closed: Any, inputs: Sequence[Any]) -> list[Any]:
            env = dict(zip(closed.jaxpr.invars, inputs, strict=True))
            env.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))
            evaluate(closed.jaxpr.eqns, env, bind)
            return [value(var, env) for var in closed.jaxpr.outvars]

        return run

    with gradients(change, calls):
        traced = jax.make_jaxpr(jax.grad(loss))(1.0)
    if [main for _, main in seen] != [1]:
        raise _Missing("jax.grad does not go through jax.vjp")
    eqns = {eqn.primitive.name: eqn for eqn in seen[0][0].jaxpr.eqns}
    if "sin" not in eqns or "scan" not in eqns or "jaxpr" not in eqns["scan"].params:
        raise _Missing("a scan is no equation with a jaxpr")
    if [call.name.rpartition(".")[2] for _, call in calls.of(eqns["sin"])][-1:] != ["block"]:
        raise _Missing("equations have no stack of names")
    site = site_of(eqns["sin"], files)
    if site is None or site.column < 0 or site.end_column <= site.column:
        raise _Missing("equations have no columns of the source (python -X no_debug_ranges?)")
    inner = [eqn.primitive.name for eqn in eqns["scan"].params["jaxpr"].jaxpr.eqns]
    if not set(inner) & set(REMATS):
        raise _Missing(f"jax.checkpoint is the equation {' '.join(inner)}")
    if not without_dead_code(traced.jaxpr).eqns:
        raise _Missing("dead code is not found")


REMATS = ("checkpoint", "remat", "remat2")
"""Names of the primitive of `jax.checkpoint`."""
NAME = "name"
"""Name of the primitive of `checkpoint_name`."""
JITS = ("jit", "pjit", "closed_call", "core_call")
"""Names of the primitives of nested functions."""
