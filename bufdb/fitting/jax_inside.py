"""Parts of JAX that `bufdb fit` uses and JAX does not promise to keep.

Four things: where an equation was written (frames with columns), how it is bound again, which call
of a user's function it belongs to (the stack of names), and `jax.vjp`, which every gradient goes
through. `probe` tries each on a small program, so that a JAX in which one has changed is refused
with the reason instead of giving wrong plans.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

from bufdb.capture.target import jax_module
from bufdb.errors import BufdbError
from bufdb.fitting.arguments import Kind, kind_of, shapes_of
from bufdb.fitting.counting import REMATS, aval_bytes, is_dropped, is_literal, kind, residuals, work
from bufdb.fitting.plans import Site
from bufdb.fitting.stretches import Stretch, item_of, stretches_of
from bufdb.read.jax_names import SCAN_STEPS
from bufdb.read.own import NOTHING_MORE, Own, parse_own

# -- Files of the user -----------------------------------------------------------------------------

_GENERATOR = 0x20
"""Flag of the code of a generator, whose frame comes and goes."""


@dataclass(frozen=True)
class Files:
    """Which files are the user's."""

    own: Own = NOTHING_MORE
    known: dict[str, bool] = field(default_factory=dict, compare=False)
    """Answers of `has` so far, by the name of the file."""

    def has(self, name: str) -> bool:
        """Return whether a file is the user's, so that it can be changed."""
        is_own = self.known.get(name)
        if is_own is None:
            is_own = self.known[name] = not self.own.is_library(name)
        return is_own


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


def being_evaluated(files: Files, outermost: CodeType) -> Site | None:
    """Return the innermost expression of the user's in the running calls, up to those of a code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not outermost:
        if files.has(frame.f_code.co_filename):
            return _frame(frame.f_code, frame.f_lasti).site
        frame = frame.f_back
    return None


def _frame(code: CodeType, instruction: int) -> Frame:
    return _frame_in(code.co_filename, code, instruction)


@cache
def _frame_in(_file: str, code: CodeType, instruction: int) -> Frame:
    """Return a frame; codes of equal functions in two files are equal."""
    positions = next(itertools.islice(code.co_positions(), instruction // 2, None))
    line, end_line, column, end_column = (-1 if value is None else value for value in positions)
    site = Site(code.co_filename, line, column, end_line, end_column, code.co_qualname)
    return Frame(site, code.co_firstlineno)


# -- Equations, evaluated again --------------------------------------------------------------------

_CALL = "bufdb-call-"
"""Beginning of the names that number calls."""
GRADIENT = "bufdb-gradient-"
"""Beginning of the names that number gradients."""


def gradient_number(eqn: Any) -> int | None:
    """Return the number of the gradient that an equation is of; None if it is of none."""
    number = re.search(f"{GRADIENT}([0-9]+)", str(eqn.source_info.name_stack))
    return None if number is None else int(number[1])


def bind(
    eqn: Any,
    inputs: Sequence[Any],
    params: dict[str, Any] | None = None,
    *,
    is_numbered: bool = False,
) -> list[Any]:
    """Return the outputs of an equation for other inputs, made where it was made.

    The numbers of its calls are left out of its names, unless `is_numbered`.
    """
    params_given = eqn.primitive.get_bind_params(eqn.params if params is None else params)
    functions, options = params_given if isinstance(params_given, tuple) else ((), params_given)
    with context(eqn, is_numbered=is_numbered):
        outputs = eqn.primitive.bind(*functions, *inputs, **options)
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


@contextlib.contextmanager
def context(eqn: Any, *, is_numbered: bool = False) -> Iterator[None]:
    """Make what is bound within the block appear where an equation was made."""
    source_info_util = importlib.import_module("jax._src.source_info_util")
    own = eqn.source_info.name_stack
    kept = (one for one in own.stack if is_numbered or not _is_call(getattr(one, "name", "")))
    names = source_info_util.current_name_stack() + type(own)(tuple(kept))
    traceback = eqn.source_info.traceback
    with source_info_util.user_context(traceback, name_stack=names), eqn.ctx.manager:
        yield


@contextlib.contextmanager
def _own_places() -> Iterator[None]:
    """Make what is traced within the block appear where it is written.

    Within the backward function of a custom_vjp JAX has all appear where that is called.
    """
    info = importlib.import_module("jax._src.source_info_util")
    here, was = info._source_info_context, info._source_info_context.context
    here.context = info.SourceInfo(None, was.name_stack)
    try:
        yield
    finally:
        here.context = was


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


class Obeyed(NamedTuple):
    """What a JAX does of a policy."""

    offloads: bool
    """Whether it saves names in host memory."""
    saves_products: bool


def obeyed() -> Obeyed:
    """Return whether policies save names in host memory, and whether they save products.

    Under JAX_REMAT3 a JAX may pass over either, so both are tried there, on a small gradient.
    """
    jax = jax_module()
    if not getattr(jax.config, "jax_remat3", False):
        return Obeyed(True, True)
    policies = jax.checkpoint_policies

    square = jax.custom_vjp(lambda x: x @ x)
    square.defvjp(lambda x: (x @ x, x), lambda x, cotangent: (cotangent @ x,))

    def traced(policy: Any) -> Any:
        def body(x: Any, _: Any) -> Any:
            named_square = named(square(jax.numpy.sin(x)), "probe")
            return jax.numpy.sin(named_square), None

        def loss(x: Any) -> Any:
            checkpointed = jax.checkpoint(body, policy=policy, prevent_cse=False)
            return jax.lax.scan(checkpointed, x, None, length=2)[0].sum()

        return without_dead_code(jax.make_jaxpr(jax.grad(loss))(jax.numpy.ones((2, 2))).jaxpr)

    offloading = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["probe"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    nothing, products = traced(policies.nothing_saveable), traced(policies.dots_saveable)
    is_moved = residuals(traced(offloading)).host_bytes > 0
    return Obeyed(is_moved, work(products) != work(nothing))


def shard_mapped(run: Callable[..., Any], params: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs on each shard, with the parameters of a shard_map's equation."""
    axes = params.get("newly_manual_axes", params.get("manual_axes"))
    mapped: Callable[..., Any] = jax_module().shard_map(
        run,
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=list(params["out_specs"]),
        axis_names=set(params["mesh"].axis_names) if axes is None else set(axes),
        check_vma=params["check_vma"],
    )
    return mapped


def named(array: Any, name: str) -> Any:
    """Return an array with a name for policies."""
    return importlib.import_module("jax.ad_checkpoint").checkpoint_name(array, name)


class Held(NamedTuple):
    """A variable of a jaxpr that is being traced."""

    var: Any
    mapped: tuple[int, ...] = ()
    """Its axes that vmaps have taken away from the value, the outermost first."""


def held_by(array: Any) -> Held | None:
    """Return the variable that a traced value is; None if it is none, or this JAX has none."""
    mapped: list[int] = []
    while isinstance(at := getattr(array, "batch_dim", None), int):
        mapped.insert(0, at)
        array = array.val
    var = getattr(array, "val", None)
    is_var = hasattr(var, "aval") and hasattr(array, "aval") and not is_literal(var)
    return Held(var, tuple(mapped)) if is_var else None


def value(var: Any, env: dict[Any, Any]) -> Any:
    """Return the value of a variable or of a literal."""
    return var.val if is_literal(var) else env[var]


def without_dead_code(jaxpr: Any) -> Any:
    """Return a jaxpr without equations that no output takes, also in what is nested."""
    partial_eval = importlib.import_module("jax._src.interpreters.partial_eval")
    alive = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return alive[0]


def has_effects(eqn: Any) -> bool:
    """Return whether an equation is no dead code although nothing reads its outputs."""
    partial_eval = importlib.import_module("jax._src.interpreters.partial_eval")
    rule = getattr(partial_eval, "has_effects", None)
    return bool(eqn.effects if rule is None else rule(eqn))


def source_of(jaxpr: Any) -> tuple[str, str, int] | None:
    """Return name, file and line of the function that a jaxpr was traced from."""
    info = getattr(getattr(jaxpr, "debug_info", None), "func_src_info", None) or ""
    name, at, place = info.rpartition(" at ")
    file, colon, line = place.rpartition(":")
    return (name, file, int(line)) if at and colon and line.isdigit() else None


# -- Calls of what vmap makes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Mapped:
    """A call of what `jax.vmap` makes, in no other one."""

    site: Site
    """The user's expression that calls."""
    size: int
    """Of the mapped axis."""
    mapped_bytes: int
    """Of the arguments that are mapped."""


@contextlib.contextmanager
def mapped_calls(files: Files) -> Iterator[list[Mapped]]:
    """Within the block, note the user's calls of what vmap makes; none in an unknown JAX."""
    api: Any = importlib.import_module("jax._src.api")
    size_of: Callable[..., Any] | None = getattr(api, "_mapped_axis_size", None)
    calls: list[Mapped] = []
    if size_of is None:
        yield calls
        return

    def noted(fn: Any, tree: Any, values: Any, axes: Any, name: str, **more: Any) -> Any:
        size = size_of(fn, tree, values, axes, name, **more)
        vmap = sys._getframe(1)
        caller = _beyond(vmap.f_back)
        if name == "vmap" and caller is not None and files.has(caller.f_code.co_filename):
            above: FrameType | None = caller
            while above is not None and above.f_code is not vmap.f_code:
                above = above.f_back
            if above is None:
                pairs = zip(values, axes, strict=True)
                held = (
                    aval_bytes(getattr(one, "aval", one)) for one, at in pairs if at is not None
                )
                site = _frame(caller.f_code, caller.f_lasti).site
                calls.append(Mapped(site, int(size), sum(held)))
        return size

    api._mapped_axis_size = noted
    try:
        yield calls
    finally:
        api._mapped_axis_size = size_of


def _beyond(frame: FrameType | None) -> FrameType | None:
    """Return the first frame that is none of those with which JAX shortens tracebacks."""
    while frame is not None and frame.f_code.co_filename.endswith("traceback_util.py"):
        frame = frame.f_back
    return frame


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
    rank: int
    """How many calls of the function were before it in the same trace."""
    shapes: tuple[str, ...] = ()
    """Of the arrays in its arguments, or in those that hold state: only they are arguments of the
    checkpoint then."""
    stretch: Stretch | None = None
    """What of the function runs, if not all of it; `first_line` is its key then, negative, as a
    lambda may begin on the same line."""


@dataclass
class State:
    """What calls of a function change that is not among their results."""

    library: Literal["", "nnx", "linen", "haiku"] = ""
    """Whose state; '' for none."""
    parameters: tuple[str, ...] = ()
    """Names of the function's parameters, in order."""
    held: set[str] = field(default_factory=set)
    """Those that hold modules with state; '' if the closure does."""
    kinds: dict[str, set[Kind]] = field(default_factory=dict)
    """Of each parameter, or name that a stretch reads, what it was in the calls."""
    taken: dict[str, set[Kind]] = field(default_factory=dict)
    """The same of what a stretch takes out of a list, by the text of the call; '' of modules."""
    results: dict[str, set[Kind]] = field(default_factory=dict)
    """Of each name that a stretch assigns for what comes after it, what it was then."""

    def only(self, kind: Kind) -> tuple[str, ...]:
        """Return the parameters, or names, that were of one kind in every call, in order."""
        return tuple(name for name, kinds in self.kinds.items() if kinds == {kind})


_STATEFUL = {"flax.nnx": ("Pytree", "Object", "Variable"), "flax.linen": ("Module",)}
"""Base classes of what has state, by the beginning of their modules' names."""
_PARAMETERS_BY_STARS = 0x04, 0x08
"""Flags of the code of a function with `*args`, and with `**kwargs`."""


def _library(value: Any, depth: int = 2) -> Literal["", "nnx", "linen"]:
    """Return whose state a value holds, itself or in lists, tuples and dicts; '' for none."""
    if isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else value
        return next((one for item in items if depth and (one := _library(item, depth - 1))), "")
    for base in type(value).__mro__:
        for module, names in _STATEFUL.items():
            if base.__name__ in names and base.__module__.startswith(module):
                if module == "flax.nnx":
                    return "nnx"
                return "" if getattr(value, "scope", None) is None else "linen"
    return ""


class Calls:
    """The calls of the user's functions; equations have their numbers in the stack of names."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: list[Call] = []
        self._ranks: Counter[tuple[str, int]] = Counter()
        self._states: dict[tuple[str, int], State] = {}
        self._stretches = cache(stretches_of)  # of the files as they are while it traces

    def numbered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that numbers the calls that it makes, of any depth.

        Stretches of the statements of a function are numbered, too, in the first call of it; in
        later ones the bodies of loops that ran several times in that.
        """
        jax = jax_module()
        open_calls: list[tuple[FrameType, Call, Any]] = []
        self._ranks.clear()

        def enter(frame: FrameType, call: Call) -> None:
            scope = jax.named_scope(f"{_CALL}{len(self._known)}")
            self._known.append(call)
            scope.__enter__()
            open_calls.append((frame, call, scope))

        def leave() -> None:
            frame, call, scope = open_calls.pop()
            scope.__exit__(None, None, None)
            if call.stretch is not None:
                self._read_results(frame, call)

        known = self._files.known

        def observe(frame: FrameType, event: str, _argument: Any) -> Any:
            if known.get(frame.f_code.co_filename) is False:  # of most calls, which are JAX's
                return None
            call = self._call(frame) if event == "call" else None
            if call is None:
                return None
            enter(frame, call)
            stretches = self._numbered_stretches(call)
            return observer(stretches) if stretches else observe_return

        def observer(stretches: Sequence[Stretch]) -> Any:
            def observe_lines(frame: FrameType, event: str, _argument: Any) -> Any:
                if event not in ("line", "return"):
                    return observe_lines
                while open_calls and open_calls[-1][0] is frame:
                    within = open_calls[-1][1].stretch
                    if within is None and event == "line":
                        break
                    if within is not None and event == "line" and _is_in(frame, within):
                        return observe_lines
                    leave()
                for one in stretches if event == "line" else ():
                    if _is_in(frame, one):
                        enter(frame, self._run_of(frame, one))
                return observe_lines

            return observe_lines

        at_return = observer(())

        def observe_return(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "return":
                at_return(frame, event, None)
            return observe_return

        return _observed(function, observe)

    def _numbered_stretches(self, call: Call) -> Sequence[Stretch]:
        """Return the stretches of a function whose runs in a call of it are numbered."""
        stretches = self._stretches(call.file, call.first_line)
        if not call.rank:
            return stretches
        return [one for one in stretches if one.is_loop and self._ranks[call.file, -one.key] > 1]

    def _run_of(self, frame: FrameType, stretch: Stretch) -> Call:
        """Return a run of a stretch as a call, and note what the names have that it reads."""
        code, values = frame.f_code, frame.f_locals
        key = code.co_filename, -stretch.key
        place = (stretch.first_line, stretch.column, stretch.last_line, stretch.end_column)
        site = Site(code.co_filename, *place, code.co_qualname)
        state = self._states.setdefault(key, State())
        read = {name: values[name] for name in stretch.reads if name in values}
        for name, value in read.items():
            state.kinds.setdefault(name, set()).add(kind_of(value))
            if library := _library(value):
                state.library = library
                state.held.add(name)
        around = self.state(code.co_filename, code.co_firstlineno)
        if "" in around.held or around.library in ("linen", "haiku"):
            # A module of linen makes its parts as they run, in a checkpoint of its own alone.
            state.library = around.library
            state.held |= around.held or {""}
        self._ranks[key] += 1
        items = [item_of(one, values) for one in stretch.taken]
        for call, item in zip(stretch.taken, items, strict=True):
            kind: Kind = "" if _library(item) else kind_of(item)
            state.taken.setdefault(ast.unparse(call), set()).add(kind)
        taken = [*read.values(), *items]
        shapes = shapes_of(value for value in taken if kind_of(value) == "arrays")
        return Call(site, code.co_qualname, *key, self._ranks[key] - 1, shapes, stretch)

    def _read_results(self, frame: FrameType, call: Call) -> None:
        """Note what the names have that a stretch assigns for what comes after it."""
        assert call.stretch is not None
        state, values = self._states[call.file, call.first_line], frame.f_locals
        for name in call.stretch.writes:
            kind: Kind = kind_of(values[name]) if name in values else ""
            state.results.setdefault(name, set()).add(kind)

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
        self._read_state(frame)
        site = _frame(caller.f_code, caller.f_lasti).site
        key = code.co_filename, code.co_firstlineno
        self._ranks[key] += 1
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        state, values = self.state(*key), frame.f_locals
        taken = [
            name for name in names if name in values and (name in state.held or not state.held)
        ]
        shapes = shapes_of(values[name] for name in taken)
        return Call(site, code.co_qualname, *key, self._ranks[key] - 1, shapes)

    def _read_state(self, frame: FrameType) -> None:
        """Note which parameters of a function hold state; a checkpoint must have them as its own.

        JAX alone does not know of it: in `jax.checkpoint` the state that a closure has would be
        changed at another level of traces, which flax refuses, or get values that leak.
        """
        code, values = frame.f_code, frame.f_locals
        key = code.co_filename, code.co_firstlineno
        count = code.co_argcount + code.co_kwonlyargcount
        count += sum(bool(code.co_flags & flag) for flag in _PARAMETERS_BY_STARS)
        names = code.co_varnames[:count]
        state = self._states.setdefault(key, State(parameters=code.co_varnames[: code.co_argcount]))
        for name in names:
            if name in values:
                state.kinds.setdefault(name, set()).add(kind_of(values[name]))
        for name in (*names, *code.co_freevars):
            if library := _library(values.get(name)):
                state.library = library
                state.held.add(name if name in names else "")
        haiku = sys.modules.get("haiku._src.base")
        if haiku is not None and haiku.frame_stack:
            state.library = "haiku"

    def state(self, file: str, first_line: int) -> State:
        """Return the state that calls of a function change."""
        return self._states.get((file, first_line), State())

    def rank(self, number: int) -> int:
        """Return how many calls of its function were before a call in the same trace."""
        return self._known[number].rank

    def stretch(self, number: int) -> Stretch | None:
        """Return what runs in a call, if it is a stretch of statements."""
        return self._known[number].stretch

    def shapes(self, number: int) -> tuple[str, ...]:
        """Return those of the arrays in the arguments of a call."""
        return self._known[number].shapes

    def of(self, eqn: Any) -> list[tuple[int, Call]]:
        """Return the calls in which an equation was made with their numbers, outermost first."""
        calls = []
        for part in eqn.source_info.name_stack.stack:
            name = getattr(part, "name", "")
            if _is_call(name):
                number = int(name.removeprefix(_CALL))
                calls.append((number, self._known[number]))
        return calls


def _observed(function: Callable[..., Any], observe: Any) -> Callable[..., Any]:
    """Return a function in which `observe` is a trace function, next to that of a debugger."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(_both(before, observe))
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(before)

    return run


def _both(first: Any, second: Any) -> Any:
    """Return a trace function that calls two, and returns both that these return, as one."""
    if first is None or second is None:
        return first or second

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return _both(first(frame, event, argument), second(frame, event, argument))

    return trace


def _is_in(frame: FrameType, stretch: Stretch) -> bool:
    return stretch.first_line <= frame.f_lineno <= stretch.last_line


# -- Every gradient --------------------------------------------------------------------------------

Loss = Callable[..., Any]
Changed = Callable[[Any, Sequence[Any]], list[Any]]
"""Receives a loss as a closed jaxpr, and flat inputs; returns its flat outputs."""
Change = Callable[[Any, int, Sequence[str]], Changed]


@contextlib.contextmanager
def gradients(change: Change, calls: Calls | None) -> Iterator[None]:
    """Within the block, differentiate what `change` makes of each loss in its place.

    `change` receives the loss as a closed jaxpr, how many of its outputs are differentiated, and
    where each output is in what the loss returns, such as `[1]['accuracy']`. The user's loss runs
    once; a gradient within a loss is part of it.

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
    change: Change,
    calls: Calls | None,
) -> Loss:
    """Return a loss in whose place `change` puts another, traced for its arguments."""
    flat, tree = jax.tree.flatten(primals)
    outside: dict[int, Any] = {}
    paths: list[str] = []
    out_tree = None
    main = 0

    def flat_fun(*leaves: Any) -> list[Any]:
        nonlocal out_tree, main
        out = (fun if calls is None else calls.numbered(fun))(*jax.tree.unflatten(tree, leaves))
        main = len(jax.tree.leaves(out[0] if has_aux else out))
        values, out_tree = jax.tree.flatten(out)
        paths[:] = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(out)]
        # What is auxiliary need not be an array.
        outside.update((at, leaf) for at, leaf in enumerate(values) if not _is_array(jax, leaf))
        return [leaf for at, leaf in enumerate(values) if at not in outside]

    with _own_places():
        closed = jax.make_jaxpr(flat_fun)(*flat)
    run = change(closed, main, [one for at, one in enumerate(paths) if at not in outside])

    def changed(*leaves_in: Any) -> Any:
        outputs = iter(run(closed, jax.tree.leaves(leaves_in)))
        assert out_tree is not None
        leaves = [
            outside[at] if at in outside else next(outputs) for at in range(out_tree.num_leaves)
        ]
        return jax.tree.unflatten(out_tree, leaves)

    return changed


def _is_array(jax: Any, leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex | jax.Array) or hasattr(leaf, "dtype")


# -- What JAX has, tried ---------------------------------------------------------------------------


@cache
def probe() -> None:
    """Try all of this module on a small program, once in a process.

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
    files, seen = Files(parse_own([__file__])), []
    calls = Calls(files)

    def block(x: Any) -> Any:
        return jax.numpy.sin(x)

    def loss(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return named(carry * 2.0, "probe"), None

        return jax.lax.scan(jax.checkpoint(body), block(x), None, length=2)[0]

    def change(closed: Any, main: int, _paths: Sequence[str]) -> Changed:
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
    inner = [kind(eqn) for eqn in eqns["scan"].params["jaxpr"].jaxpr.eqns]
    if not set(inner) & set(REMATS):
        raise _Missing(f"jax.checkpoint is the equation {' '.join(inner)}")
    if not without_dead_code(traced.jaxpr).eqns:
        raise _Missing("dead code is not found")


SHARD_MAPS = ("shard_map",)
"""Names of the primitive of `jax.shard_map`."""
JITS = ("jit", "pjit", "core_call", *SCAN_STEPS)
"""Names of the primitives of nested functions."""
