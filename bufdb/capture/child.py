"""The process in which `bufdb explain` runs a user's file.

What the file does at import, to JAX or to this process, stays here. Invariant: the parent gets
everything that it needs from files in one folder, whatever the user's code prints.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import threading
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bufdb.capture import call
from bufdb.capture.dump import compile_into
from bufdb.capture.target import Target, jax_module, target
from bufdb.errors import BufdbError, UsageError, quote
from bufdb.render.text import human_bytes

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
    with wrong_calls():
        return call.lowered(jitted, args, kwargs, target.platform, target.devices, target.name)


def unused_note(stage: Any) -> str | None:
    """Return a note on arguments that a function does not use; None if there are none.

    JAX leaves them out of the program (keep_unused=False), so a dump does not have them.

    Args:
        stage: the function lowered, or traced.
    """
    try:
        kept = _kept(stage)
        infos = jax_module().tree.leaves(stage.args_info, is_leaf=lambda x: hasattr(x, "donated"))
    except (AttributeError, KeyError, TypeError):  # not known to this JAX
        return None
    unused = [info for at, info in enumerate(infos) if at not in kept]
    size = sum(math.prod(info.shape) * info.dtype.itemsize for info in unused)
    if not size:
        return None
    what = f"{len(unused)} of {len(infos)} arguments {'is' if len(unused) == 1 else 'are'} not used"
    return (
        f"{what}, {human_bytes(size)}: JAX leaves them out of the program, so no figure here has "
        "them; their arrays stay with the caller"
    )


def _kept(stage: Any) -> Container[int]:
    """Return the numbers of the arguments that JAX passes on: as `jax._src.pjit` prunes them."""
    if hasattr(stage, "_lowering"):
        kept: Container[int] = stage._lowering.compile_args["kept_var_idx"]
        return kept
    jaxpr = stage.jaxpr.jaxpr
    if stage._params["keep_unused"]:
        return range(len(jaxpr.invars))
    variables = (*jaxpr.outvars, *(one for equation in jaxpr.eqns for one in equation.invars))
    used = {one for one in variables if not hasattr(one, "val")}
    return {at for at, one in enumerate(jaxpr.invars) if one in used}


@contextmanager
def wrong_calls() -> Iterator[None]:
    """Raise a UsageError for a call that does not fit."""
    try:
        yield
    except call.WrongCallError as error:
        raise UsageError(str(error)) from error


# -- The process in which `bufdb explain` runs a user's file ---------------------------------------

DUMPS = "dumps"
FOUND = "found.json"
"""The result: {"device": kind, "refusal": XLA's line or null, "note": text or null}, or
{"message": …, "exit_code": …, "trace": lines of the user's own}."""
DEVICE = "device"
"""The kind of the device, written before compilation."""
DOING = "doing"
"""The current step."""
LINES = 12
"""Maximum lines of a traceback or of a message."""


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
    with wrong_calls():
        with step(folder, f"importing {place}"):
            module = call.module(place)
        function = call.function(module, place, name)
        with step(folder, f"evaluating --args for {spec}"):
            values, kwargs = call.arguments(args, vars(module)).of(function, name)
    return Asked(function, values, kwargs, described)


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
    return {"device": kind, "refusal": refusal, "note": unused_note(stage)}


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
    except (BufdbError, call.WrongCallError):
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
    own = (__file__, jax_module().__file__, importlib.__file__)
    hidden = (*(os.path.dirname(file) for file in own), "<frozen")  # noqa: PTH120
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]
    text = "".join(traceback.format_list(frames)).splitlines()
    return text[-LINES:], frames[-1] if frames else None


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
