"""The process in which `bufdb explain` runs a user's file: `python -m bufdb.capture.child`.

What the file does at import, to JAX or to this process, stays here. Invariant: the parent gets
everything that it needs from files in one folder, whatever the user's code prints.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import math
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bufdb.capture.dump import compile_into
from bufdb.capture.target import Target, jax_module, target
from bufdb.errors import BufdbError, UsageError, did_you_mean, quote

# -- The arguments of a call as text, and as a function accepts them -------------------------------

_CALL = "_"


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    is_one: bool = False
    """Whether the text was one expression: a tuple then is all arguments, if the function fits."""

    def of(self, function: Callable[..., Any], name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in the form that a function accepts.

        Args:
            function: plain or jitted; without a known signature the arguments are not changed.
            name: its name, for the message.

        Raises:
            UsageError: it takes different arguments.
        """
        named = dict(self.kwargs or {})
        given = [self.args]
        if self.is_one and type(self.args[0]) is tuple:
            given.insert(0, self.args[0])
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return given[0], named
        for args in given:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                reason = str(error)
            else:
                return args, named
        shown = "none" if not given[0] and not named else f"{_given(given[0], named)}: {reason}"
        raise UsageError(f"{name} takes {_names(signature)}; --args gives {shown}")


def _names(signature: inspect.Signature) -> str:
    """Return a signature such as (params, batch, *, train=False); long defaults are '...'."""
    parts = [
        item.replace(annotation=item.empty, default=_Short(item.default))
        if item.default is not item.empty
        else item.replace(annotation=item.empty)
        for item in signature.parameters.values()
    ]
    return str(inspect.Signature(parts)) if parts else "no arguments"


@dataclass(frozen=True, repr=False)
class _Short:
    """A default value in a message."""

    value: Any

    def __repr__(self) -> str:
        text = repr(self.value)
        return text if len(text) <= 20 and "\n" not in text else "..."


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    parts = [str(len(args))] if args else []
    return ", ".join([*parts, *(f"{name}=" for name in kwargs)])


def arguments(text: str, names: Mapping[str, Any]) -> Arguments:
    """Return the value of --args: comma-separated expressions, or everything a call takes.

    Args:
        text: such as `f32[8], state()`, `*args(16)` or `x=f32[8], **options`.
        names: the names that it may use.

    Raises:
        UsageError: it is not valid Python, or uses an unknown name.
    """
    if not text.strip():
        return Arguments()
    try:
        tree = _parsed(text.strip())
    except SyntaxError as error:
        raise UsageError(f"--args {quote(text)} is not Python: {error.msg}") from error
    space = {**names, _CALL: lambda *args, **kwargs: (args, kwargs)}
    try:
        args, kwargs = eval(compile(tree, "--args", "eval"), space)
    except NameError as error:
        raise UsageError(f"--args {quote(text)}: {error}") from error
    call = tree.body
    assert isinstance(call, ast.Call)
    is_one = len(call.args) == 1 and not kwargs and not isinstance(call.args[0], ast.Starred)
    # `x,` is a tuple whose one element is the argument.
    return Arguments(args, kwargs, is_one and not text.strip().endswith(","))


def _parsed(text: str) -> ast.Expression:
    """Parse a call with the text between its parentheses.

    Raises:
        SyntaxError: the text does not form such a call.
    """
    tree = ast.parse(f"{_CALL}(\n{text}\n)", mode="eval")
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise SyntaxError("unmatched ')'")  # as in `1) + (2`
    return tree


# -- Lower a Python function: for the devices of this process, or for a target ---------------------


def lowered(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: Target | None = None
) -> Any:
    """Return the result of `jax.jit(function).lower(*args, **kwargs)`.

    Args:
        function: plain, or jitted with the options that it needs.
        args: arrays or `jax.ShapeDtypeStruct`, in trees.
        kwargs: the same by name.
        target: hardware to compile for. Arguments that are sharded over a mesh are sharded over a
            mesh of its devices with the same axes, the others are replicated on that mesh; without
            a mesh everything is for one device.

    Raises:
        UsageError: it is not a function; or for a target it has no array, or too large a mesh.
    """
    jax = jax_module()
    if not callable(function):
        raise UsageError(f"expected a function, found {type(function).__name__}")
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    if target is None:
        return jitted.lower(*args, **kwargs)
    if target.platform == "cpu" and not any(
        hasattr(leaf, "shape") for leaf in jax.tree.leaves((args, kwargs))
    ):
        with jax.default_device(target.devices[0]):
            return jitted.lower(*args, **kwargs)
    given, names = _placed(jax, (tuple(args), dict(kwargs)), target)
    return jitted.trace(*given, **names).lower(lowering_platforms=(target.platform,))


def _placed(jax: Any, tree: Any, target: Target) -> Any:
    """Return the arguments as shapes without values, on devices of the target."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]
    if not leaves:
        raise UsageError("for a target a function needs an array or a ShapeDtypeStruct as argument")
    named = jax.sharding.NamedSharding
    meshes = [
        leaf.sharding.mesh for leaf in leaves if isinstance(getattr(leaf, "sharding", None), named)
    ]
    mesh = _mesh(jax, meshes[0], target) if meshes else None
    single = jax.sharding.SingleDeviceSharding(target.devices[0])

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = single
        if mesh is not None:
            own = getattr(leaf, "sharding", None)
            spec = own.spec if isinstance(own, named) else jax.sharding.PartitionSpec()
            sharding = named(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, tree)


def _mesh(jax: Any, like: Any, target: Target) -> Any:
    """Return a mesh of the target's devices with the axes of `like`."""
    shape = tuple(like.shape.values())
    count = math.prod(shape)
    if count > len(target.devices):
        raise UsageError(
            f"the arguments are sharded over {count} devices, {target.name} has "
            f"{len(target.devices)}; name a larger one with --target"
        )
    devices = np.array(target.devices[:count], dtype=object).reshape(shape)
    return jax.sharding.Mesh(devices, like.axis_names)


# -- The process in which `bufdb explain` runs a user's file: `python -m bufdb.capture.child` -----

DUMPS = "dumps"
FOUND = "found.json"
"""The result: {"device": kind, "refusal": XLA's line or null}, or
{"message": …, "exit_code": …, "trace": lines of the user's own}."""
DEVICE = "device"
"""The kind of the device, written before compilation."""
DOING = "doing"
"""The current step."""
LINES = 12
"""Maximum lines of a traceback or of a message."""
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "s64": "int64",
    "s32": "int32",
    "s16": "int16",
    "s8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "pred": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""JAX's names of element types by XLA's."""


class Shapes:
    """`f32[8, 128]` in the text of --args: an array of a shape, without values."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Any:
        """Return the array; `f32[()]` is a scalar."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return jax_module().ShapeDtypeStruct(sizes, self.dtype)


class Failed(BufdbError):
    """The user's code, or XLA, gave up; the message says where and why."""

    def __init__(self, message: str, trace: list[str]) -> None:
        super().__init__(message)
        self.trace = trace
        """Lines of its traceback that are the user's own."""


@dataclass(frozen=True)
class Asked:
    """A function of a user's file, with the arguments that it takes."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Target | None


def asked(spec: str, args: str, hardware: str | None, folder: Path) -> Asked:
    """Import a user's file, and evaluate arguments for a function of it.

    Args:
        spec: FILE.py:FUNCTION or package.module:FUNCTION.
        args: arguments as in a call: shapes as f32[8, 128], and names of the file.
        hardware: the value of --target; None for the devices of this machine.
        folder: gets DOING.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        BufdbError: a package is missing.
        Failed: the user's code raised an exception.
    """
    place, colon, name = spec.rpartition(":")
    if not colon:
        raise UsageError(f"expected FILE.py:FUNCTION, got {quote(spec)}")
    jax_module()
    described = None if hardware is None else target(hardware)
    with step(folder, f"importing {place}"):
        module = _module(place)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [item for item in vars(function) if not item.startswith("_")]
            raise UsageError(f"{place} has no {quote(name)}{did_you_mean(part, known)}")
        function = getattr(function, part)
    names = {**vars(module), **{dtype: Shapes(of) for dtype, of in DTYPES.items()}}
    with step(folder, f"evaluating --args for {spec}"):
        args_given, kwargs = arguments(args, names).of(function, name)
    return Asked(function, args_given, kwargs, described)


def run(spec: str, args: str, hardware: str | None, folder: Path) -> dict[str, Any]:
    """Dump the compilation of a function of a user's file; return the content of FOUND.

    The arguments are those of `asked`; the folder contains DUMPS, the folder to dump to.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        BufdbError: a package is missing, or XLA wrote no dump.
        Failed: the user's code raised an exception, or XLA did before it planned the memory.
    """
    found = asked(spec, args, hardware, folder)
    where = "" if hardware is None else f" for {hardware}"
    with step(folder, f"tracing {spec}{where}"):
        stage = lowered(found.function, found.args, found.kwargs, found.target)
    kind = kind_of(found.target)
    with step(folder, f"compiling {spec}{where}"):
        # In case the compiler ends this process.
        (folder / DEVICE).write_text(kind, encoding="utf-8")
        options = None if found.target is None else found.target.options
        refusal = compile_into(stage, folder / DUMPS, options)
    return {"device": kind, "refusal": refusal}


def kind_of(described: Target | None) -> str:
    """Return JAX's name for the kind of device that is compiled for."""
    return described.device_kind if described else str(jax_module().devices()[0].device_kind)


@contextmanager
def step(folder: Path, what: str) -> Iterator[None]:
    """Record the current step in DOING within the block, and name it in errors.

    Raises:
        Failed: instead of any exception of the user's code.
    """
    written = folder / f"{DOING}.new"
    written.write_text(what, encoding="utf-8")
    written.replace(folder / DOING)
    try:
        yield
    except BufdbError:
        raise
    except (Exception, SystemExit) as error:  # of any code at all
        traceback.print_exc()  # for --verbose
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
        own, last = _own_frames(error)
        where = "" if last is None else f" ({Path(last.filename).name}:{last.lineno})"
        raise Failed(f"{what} failed: {reason}{where}", [*own, *lines[1:LINES]]) from error


def _own_frames(error: BaseException) -> tuple[list[str], traceback.FrameSummary | None]:
    """Return the user's frames as text in traceback format, and the last of them."""
    hidden = (os.path.dirname(__file__), os.path.dirname(jax_module().__file__), "<frozen")  # noqa: PTH120
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]
    text = "".join(traceback.format_list(frames)).splitlines()
    return text[-LINES:], frames[-1] if frames else None


def _module(place: str) -> ModuleType:
    """Import and return the module of a file or of a dotted name."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # a module that this one imports
            raise UsageError(f"no module {quote(place)}; a file's name ends in .py") from error
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"no file {place}")
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # because the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def end_with_parent(pipe: int, folder: Path) -> None:
    """End this process, and remove the folder, when the other end of a pipe is closed.

    This happens when the parent was killed. XLA may still be running on another thread, which
    creates files while others are being removed.
    """

    def wait() -> None:
        os.read(pipe, 1)
        for _ in range(100):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(given: list[str]) -> int:
    """Run the request of `bufdb explain`; return the exit code."""
    spec, args, hardware, place, pipe = given
    folder = Path(place)
    end_with_parent(int(pipe), folder)
    (folder / DUMPS).mkdir()
    found = answered(lambda: run(spec, args, hardware or None, folder))
    (folder / FOUND).write_text(json.dumps(found), encoding="utf-8")
    return int(found.get("exit_code", 0))


def answered(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what some work gives, or what FOUND has of a failure."""
    try:
        return work()
    except BufdbError as error:
        trace = error.trace if isinstance(error, Failed) else []
        return {"message": str(error), "exit_code": error.exit_code, "trace": trace}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
