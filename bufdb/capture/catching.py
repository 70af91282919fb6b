"""In a process of a user's command: which jitted calls it makes, and the end of it at one of them.

Every call of every `jax.jit` object that JAX has not seen goes through one function of
`jax._src.pjit` that traces it, and executes nothing: `_infer_params`, which JAX 0.9.0 has as
`_trace_for_jit`. So do those of `nnx.jit`,
`eqx.filter_jit`, keras, `jax.pmap` and `.lower()`. It is wrapped, and an outermost call is examined
there: with the function, shapes, shardings, static values, closures and mesh of the program.

Invariant: once a call is chosen, nothing of the program runs in its thread any more: requests are
answered inside the call, and the process ends there.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType, MethodType
from typing import Any

from bufdb.capture import simulation, worker
from bufdb.read.own import Own

REQUESTS = "requests"
"""Name of the pipe of requests, next to the plan."""
CALL, WAITING = "call-", "waiting"
"""Beginning of the keys under which calls are reported; that of functions without a call."""
_PASSED_THROUGH = 8
"""Most functions around a user's that are looked into."""
_JITS = (
    ("equinox", "_jit.py"), ("equinox", "_module"), ("flax.nnx", "transforms/compilation.py"),
    ("flax.nnx", "graphlib.py"), ("flax.nnx", "extract.py"),
)  # fmt: skip
"""Packages with a jit of their own, and their files between a call of what that made and JAX's."""
_ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True)
class Call:
    """An outermost call of a jitted function with arguments of new shapes."""

    number: int
    """From 1, in the order of first calls; eager operations of JAX are not counted."""
    name: str
    """The function's qualified name, such as main.<locals>.train_step."""
    function_place: str
    """FILE:LINE of the function; '' if unknown."""
    call_place: str
    """FILE:LINE of the innermost line of the user's that made the call; '' if unknown."""
    has_gradient: bool
    argument_bytes: int
    result_bytes: int
    constant_bytes: int
    """Of arrays that the function has from around it."""
    donated_bytes: int
    donated: tuple[str, ...]
    static: tuple[str, ...]
    shardings: tuple[str, ...]
    """The PartitionSpecs of its arguments that are sharded."""
    mesh: str
    """Axes and sizes, such as data=4,model=2; '' for none."""
    occurrence: int = 1
    """Which of the calls of this name it is, from 1."""

    @property
    def short_name(self) -> str:
        """Return the function's name without that of what it is in."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Caught:
    """The chosen call."""

    call: Call
    function: Any
    """As JAX's jit has it."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    site: tuple[str, int, int, int, int] | None
    """The user's expression that makes it: file, first line and column, last line and column; None
    where a library makes it."""
    outer: tuple[Any, tuple[Any, ...], Mapping[str, Any]] | None = None
    """What `eqx.filter_jit` or `nnx.jit` returned, and its arguments, if that makes the call: JAX's
    jit within has other ones."""


current: Catching | None = None
"""That of this process; None in one whose calls are not traced."""


class Catching:
    """The calls of this process so far, and which of them it is stopped at."""

    def __init__(self, jitting: Any, plan: Path) -> None:
        self._jitting, self._folder = jitting, plan.parent
        self._plan = json.loads(plan.read_text(encoding="utf-8"))
        self._own = Own(self._plan["own"])
        self._core = importlib.import_module("jax._src.core")
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._known: dict[int, tuple[Any, bool]] = {}
        """Programs by their address, which they keep as they are here; whether it is of a call that
        takes a gradient."""
        self._count = 0
        self._made: dict[str, str] = {}
        """Places of the user's functions that are jitted, by name."""
        self._called: Counter[str] = Counter()
        self._programs: set[str] = set()
        """Names of those that take a gradient, as JAX's compiler has them."""
        self._is_stopped = False
        self._simulation = simulation.install(worker)

    @property
    def is_round(self) -> bool:
        """Return whether the command runs until a call that takes a gradient is made again."""
        return bool(self._plan["is_round"])

    def see(self, function: Any, info: Any, args: Any, kwargs: Any, params: Any) -> None:
        """Report a call that is outermost and new; stop at it if it is the chosen one."""
        if self._is_stopped and self._lock.acquire(blocking=False):
            self._lock.release()
            return  # bufdb's own
        if os.getpid() != self._pid or not self._core.trace_state_clean():
            return
        with self._lock:  # for ever, if another thread has stopped
            closed = params.params["jaxpr"]
            if id(closed) in self._known:
                self._repeat(closed)
                return
            self._known[id(closed)] = closed, False
            number = self._count + 1
            call = described(number, function, info, (args, kwargs), params, self._own)
            if call is None:
                return
            self._count += 1
            self._called[call.name] += 1
            call = replace(call, occurrence=self._called[call.name])
            worker.known({f"{CALL}{call.number}": asdict(call)})
            if is_chosen(self._plan, call):
                if self._simulation is not None:
                    self._simulation.require()
                jitted = self._jitting._cpp_pjit(function, info)
                site, outer = _site(self._own), _outer()
                self._stop(Caught(call, jitted, tuple(args), dict(kwargs), site, outer))
            if call.has_gradient:
                name = params.params["name"]
                self._known[id(closed)] = closed, True
                self._programs |= {f"jit({name})", f"jit_{name}"}

    def _repeat(self, program: Any) -> None:
        """Stop where a call that takes a gradient is made again, if one round of them is meant."""
        if self.is_round and self._known[id(program)][1]:
            self._stop(None)

    def called(self, compiled: Any) -> None:
        """Take note of the call of a program that was compiled ahead of time."""
        if self._is_stopped or os.getpid() != self._pid:
            return
        with self._lock, suppress(AttributeError):
            if id(compiled) in self._known:
                self._repeat(compiled)
            name = compiled._executable.unsafe_call.name
            self._known[id(compiled)] = compiled, name in self._programs

    def fitted(self, number: int, name: str, function: Any, args: Any, kwargs: Any) -> None:
        """Stop at a call of `bufdb.fit` if it is the chosen one."""
        if number == self._plan["fit"] and os.getpid() == self._pid:
            call = Call(0, name, "", "", True, 0, 0, 0, 0, (), (), (), "")
            self._stop(Caught(call, function, tuple(args), dict(kwargs), None))

    def made(self, function: Any) -> None:
        """Take note of a function that is jitted; it may never be called."""
        user = _users(function, (), self._own)
        code = getattr(user, "__code__", None)
        if code is not None and not self._own.is_library(code.co_filename):
            self._made[user.__qualname__] = f"{code.co_filename}:{code.co_firstlineno}"

    def _waiting(self) -> list[tuple[str, str]]:
        """Return name and place of the functions that are jitted and were not called."""
        return [one for one in self._made.items() if one[0] not in self._called]

    def _stop(self, caught: Caught | None) -> None:
        """Answer requests, about a call if one is chosen; end this process."""
        code = 1
        self._is_stopped = True
        try:
            worker.known({WAITING: self._waiting()})
            for name in _ENDING:
                with suppress(ValueError):  # not the main thread
                    signal.signal(getattr(signal, name), signal.SIG_DFL)
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):  # closed or replaced by the user's code
                    stream.flush()
            answer: Callable[[dict[str, Any]], dict[str, Any]]
            answer = importlib.import_module(self._plan["server"]).answers(caught)
            requests = (self._folder / REQUESTS).open(encoding="utf-8")
            code = worker.serve(self._folder, answer, requests)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(code)


def is_chosen(plan: Mapping[str, Any], call: Call) -> bool:
    """Return whether a command is stopped at a call.

    Args:
        plan: {"number": of the call or None, "name": a glob or None, "occurrence": which call of
            that name or None, "is_to_end": whether calls that take a gradient are executed,
            "is_round": the same until one of them is made again, "fit": number of a call of
            `bufdb.fit`, which is chosen there}; without number and name the first that takes a
            gradient is chosen.
        call: the call.
    """
    if plan["is_round"] or plan["fit"] is not None:
        return False
    if plan["number"] is not None:
        return bool(call.number == plan["number"])
    if plan["name"] is not None:
        names = call.name, call.short_name
        is_meant = plan["occurrence"] in (None, call.occurrence)
        return is_meant and any(fnmatchcase(one, plan["name"]) for one in names)
    return call.has_gradient and not plan["is_to_end"]


def install(jitting: Any, plan: str) -> None:
    """Look at each call from now on.

    Args:
        jitting: the module `jax._src.pjit`.
        plan: the file with what to do.
    """
    worker.connect(Path(plan).parent)
    worker.known({"python": sys.executable})
    tracer = "_infer_params" if hasattr(jitting, "_infer_params") else "_trace_for_jit"
    for name in (tracer, "_cpp_pjit", "_get_fastpath_data"):
        if not hasattr(jitting, name):
            jax = importlib.import_module("jax.version").__version__
            print(f"bufdb: error: the jit of JAX {jax} is unknown", file=sys.stderr, flush=True)
            os._exit(1)
    global current
    current = catching = Catching(jitting, Path(plan))
    infer, jit = getattr(jitting, tracer), jitting._cpp_pjit

    def infer_params(function: Any, info: Any, args: Any, kwargs: Any) -> Any:
        inferred = infer(function, info, args, kwargs)
        catching.see(function, info, args, kwargs, inferred[0])
        return inferred

    def cpp_pjit(function: Any, info: Any) -> Any:
        catching.made(function)
        return jit(function, info)

    setattr(jitting, tracer, infer_params)
    jitting._cpp_pjit = cpp_pjit
    if catching.is_round:
        # Calls that are made again are seen: no program gets onto the path that passes Python by.
        jitting._get_fastpath_data = lambda *args, **kwargs: None
        compiled = importlib.import_module("jax._src.stages").Compiled
        execute = compiled.__call__

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            catching.called(self)
            return execute(self, *args, **kwargs)

        compiled.__call__ = call


def answers(caught: Caught | None) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what answers the request of `bufdb calls`: everything that it wants was reported."""
    return lambda request: {}


# -- One call --------------------------------------------------------------------------------------


def described(
    number: int, function: Any, info: Any, arguments: Any, params: Any, own: Own
) -> Call | None:
    """Return a call in words and bytes; None for an eager operation of JAX."""
    closed, options = params.params["jaxpr"], params.params
    gradient = has_gradient(closed.jaxpr)
    user = _users(function, arguments[0], own)
    code = getattr(user, "__code__", None)
    file = str(info.fun_sourceinfo) if code is None else code.co_filename
    if _jax_folder() in file and not gradient:
        return None
    name = getattr(user, "__qualname__", None) or str(info.fun_sourceinfo).partition(" at ")[0]
    place = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    donated = options["donated_invars"]
    sizes = [_bytes(aval) for aval in closed.in_avals]
    return Call(
        number=number,
        name=name,
        function_place=place,
        call_place=_place(own),
        has_gradient=gradient,
        argument_bytes=sum(sizes),
        result_bytes=sum(map(_bytes, closed.out_avals)),
        constant_bytes=sum(int(getattr(one, "nbytes", 0)) for one in params.consts),
        donated_bytes=sum(size for size, is_so in zip(sizes, donated, strict=False) if is_so),
        donated=_names(function, user, info.donate_argnums, info.donate_argnames),
        static=_names(function, user, info.static_argnums, info.static_argnames),
        **_sharded(arguments, options),
    )


def has_gradient(jaxpr: Any) -> bool:
    """Return whether a part of a program is the backward pass of a gradient."""
    stack, known = [jaxpr], set()
    while stack:
        inner = stack.pop()
        if id(inner) in known:
            continue
        known.add(id(inner))
        for equation in inner.eqns:
            if "transpose(" in str(equation.source_info.name_stack):
                return True
            stack.extend(_inner(equation.params.values()))
    return False


def _inner(values: Any) -> Iterator[Any]:
    """Return the jaxprs in the parameters of an equation."""
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif isinstance(value, tuple | list):
            yield from _inner(value)


def _bytes(aval: Any) -> int:
    size = getattr(getattr(aval, "dtype", None), "itemsize", 0)
    return math.prod(getattr(aval, "shape", ())) * int(size)


@functools.cache
def _jax_folder() -> str:
    return str(Path(sys.modules["jax._src.pjit"].__file__ or "").parents[1]) + os.sep


def _users(function: Any, args: Any, own: Own) -> Any:
    """Return the user's function within those that jit, libraries and decorators put around it."""
    candidate = function
    for _ in range(_PASSED_THROUGH):
        candidate = inspect.unwrap(candidate) if callable(candidate) else candidate
        if isinstance(candidate, functools.partial):
            candidate = candidate.func
            continue
        if callable(candidate) and not isinstance(candidate, type | MethodType):
            method = getattr(type(candidate), "__call__", None)  # noqa: B004 - of an object
            candidate = method if inspect.isfunction(method) else candidate
        code = getattr(candidate, "__code__", None)
        if code is None or not own.is_library(code.co_filename):
            break
        inner = _of_name(args, getattr(candidate, "__qualname__", "")) or _enclosed(candidate)
        if inner is None:
            break
        candidate = inner
    return candidate


def _of_name(values: Any, name: str) -> Any:
    """Return a function of a name in tuples: equinox hands the user's function on as static."""
    for value in values:
        if isinstance(value, tuple) and (inner := _of_name(value, name)) is not None:
            return inner
        if inspect.isfunction(value) and value.__qualname__ == name:
            return value
    return None


def _enclosed(function: Any) -> Any:
    """Return a function that a library's function has from around it; None if there is none."""
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # empty
            inner = cell.cell_contents
            inner = getattr(inner, "f", inner)  # JAX's WrappedFun, as in pmap
            if callable(inner) and (inspect.isfunction(inner) or hasattr(inner, "__wrapped__")):
                return inner
    return None


def _caller(own: Own) -> tuple[FrameType | None, bool]:
    """Return the innermost frame of the user's, and whether only JAX is between it and here."""
    frame: FrameType | None = sys._getframe(1)
    is_direct = True
    while frame is not None and own.is_library(file := frame.f_code.co_filename):
        is_direct &= file.startswith((__file__, _jax_folder(), *_handing_on(), "<"))
        frame = frame.f_back
    return frame, is_direct


def _handing_on() -> tuple[str, ...]:
    """Return where the code of libraries is that hands arguments on to JAX's jit."""
    files = ((getattr(sys.modules.get(name), "__file__", None), rest) for name, rest in _JITS)
    return tuple(str(Path(file).parent / rest) for file, rest in files if file is not None)


def _outer() -> tuple[Any, tuple[Any, ...], Mapping[str, Any]] | None:
    """Return what a library's jit made of the user's function, and its arguments."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, known = frame.f_code, frame.f_locals
        if code.co_filename.startswith(_handing_on() or "\0"):
            function = known.get("jit_wrapper" if code.co_name == "_call" else "self")
            is_jit = hasattr(function, "donate_rest") or hasattr(function, "jitted_fn")
            if is_jit and isinstance(args := known.get("args"), tuple):
                return function, args, known.get("kwargs", {})
        frame = frame.f_back
    return None


def _place(own: Own) -> str:
    frame, _ = _caller(own)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _site(own: Own) -> tuple[str, int, int, int, int] | None:
    """Return the expression of the user's that calls the jitted function itself."""
    frame, is_direct = _caller(own)
    if frame is None or not is_direct:
        return None
    at = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    line, end_line, column, end_column = (-1 if one is None else one for one in at)
    return frame.f_code.co_filename, line, column, end_line, end_column


def _names(function: Any, user: Any, numbers: Any, names: Any) -> tuple[str, ...]:
    """Return parameters by name; none of a library's own function around the user's."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if inner is not user:
        return ()
    known: list[str] = []
    with suppress(TypeError, ValueError):
        known = list(inspect.signature(function).parameters)
    listed = [known[at] if 0 <= at < len(known) else str(at) for at in numbers]
    return tuple(dict.fromkeys([*listed, *names]))


def _sharded(arguments: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shardings of a call, and its mesh."""
    tree = importlib.import_module("jax.tree_util")
    own = [getattr(leaf, "sharding", None) for leaf in tree.tree_leaves(arguments)]
    named = [
        one for one in (*own, *options["in_shardings"]) if hasattr(one, "spec") and one.mesh.shape
    ]
    meshes = [one.mesh for one in named]
    context = options.get("ctx_mesh")
    if getattr(context, "shape", None):
        meshes.append(context)
    specs = dict.fromkeys(str(one.spec).removeprefix("Partition") for one in named)
    mesh = meshes[0].shape if meshes else {}
    return {
        "shardings": tuple(specs),
        "mesh": ",".join(f"{name}={size}" for name, size in mesh.items()),
    }
