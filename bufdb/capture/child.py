"""The process in which `bufdb explain` runs a user's file.

What the file does at import, to JAX or to this process, stays here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.capture import call, simulation, worker
from bufdb.capture.callbacks import unbound
from bufdb.capture.dump import compile_into
from bufdb.capture.simulated import gpus
from bufdb.capture.simulation import Simulation
from bufdb.capture.target import Target, jax_module, target
from bufdb.errors import UsageError, quote
from bufdb.render.text import human_bytes

if TYPE_CHECKING:
    from bufdb.capture.catching import Caught

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
            mesh of its devices with the same axes, the others as JAX does where it calls the
            function; without a mesh everything is for one device.

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
        where = target.platform, target.devices, target.name
        return unbound(target.platform, lambda: call.lowered(jitted, args, kwargs, *where))


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


def memory_note(args: Any, kwargs: Any, described: Target | None) -> str | None:
    """Return a note on arguments whose memory JAX does not know on a target; None if none.

    Of a described GPU it knows no memory, either; `call.lowered` sets it in the module.
    """
    if described is None:
        return None
    sizes: dict[str, int] = {}
    for leaf in jax_module().tree.leaves((args, kwargs)):
        kind = call.own_memory(getattr(leaf, "sharding", None))
        device, platform = described.devices[0], described.platform
        if kind is not None and not call.keeps_memory(device, kind, platform):
            sizes[kind] = sizes.get(kind, 0) + math.prod(leaf.shape) * leaf.dtype.itemsize
    if not sizes:
        return None
    what = " and ".join(f"{human_bytes(size)} in {kind}" for kind, size in sizes.items())
    return (
        f"arguments of {what} are in device memory here: JAX knows no other memory of "
        f"{described.name} without the device, so the figures are higher than there"
    )


def _notes(*notes: str | None) -> str | None:
    return "; ".join(filter(None, notes)) or None


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


@dataclass(frozen=True)
class FunctionCall:
    """A function of a user's file, with the arguments that it takes."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Target | None
    simulation: Simulation | None = None
    """Of devices, until the function is traced."""

    def traced(self) -> None:
        """Check that the function has a mesh with the axes of --mesh."""
        if self.simulation is not None:
            self.simulation.require()


def question_of(spec: str, args: str, hardware: str | None) -> FunctionCall:
    """Import a user's file, and evaluate arguments for a function of it.

    Args:
        spec: FILE.py:FUNCTION or package.module:FUNCTION.
        args: arguments as in a call: shapes as f32[8, 128], and names of the file.
        hardware: the value of --target; None for the devices of this machine.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        BufdbError: a package is missing.
        Failed: the user's code raised an exception.
    """
    place, name = call.split(spec)
    if not place:
        raise UsageError(f"expected FILE.py:FUNCTION, got {quote(spec)}")
    jax_module()
    described = None if hardware is None else target(hardware, gpus())
    simulating = simulation.install(worker)
    with wrong_calls():
        with worker.step(f"importing {place}"):
            module = call.module(place)
        with worker.step(f"evaluating {name} of {place}"):
            function = call.function(module, place, name)
        with worker.step(f"evaluating --args for {spec}"):
            values, kwargs = call.arguments(args, vars(module)).of(function, name)
    return FunctionCall(function, values, kwargs, described, simulating)


def explained(request: Mapping[str, Any], caught: Caught | None = None) -> dict[str, Any]:
    """Dump the compilation of a function of a user's file.

    Args:
        request: {"spec", "args", "target": those of `question_of`, "dumps": the folder to dump to}.
        caught: a call of a user's command, in place of that of the request.

    Returns:
        {"device": kind, "refusal": XLA's line or None, "note": text or None}; the device is also
        reported before.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        BufdbError: a package is missing, or XLA wrote no dump.
        Failed: the user's code raised an exception, or XLA did before it planned the memory.
    """
    spec, hardware = request["spec"], request["target"]
    question = (
        question_of(spec, request["args"], hardware) if caught is None else taken(caught, hardware)
    )
    where = "" if hardware is None else f" for {hardware}"
    with worker.step(f"tracing {spec}{where}"):
        stage = lowered(question.function, question.args, question.kwargs, question.target)
    question.traced()
    kind = kind_of(question.target)
    with worker.step(f"compiling {spec}{where}"):
        worker.known({"device": kind})
        options = None if question.target is None else question.target.options
        refusal = compile_into(stage, Path(request["dumps"]), options)
    memory = memory_note(question.args, question.kwargs, question.target)
    return {"device": kind, "refusal": refusal, "note": _notes(unused_note(stage), memory)}


def taken(caught: Caught, hardware: str | None) -> FunctionCall:
    """Return a call of a user's command, for a target.

    Raises:
        UsageError: there is no such target.
        BufdbError: a package is missing.
    """
    described = None if hardware is None else target(hardware, gpus())
    return FunctionCall(caught.function, caught.args, dict(caught.kwargs), described)


def answers(caught: Caught) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what answers the request of `bufdb explain` about a call of a user's command."""
    return lambda request: explained(request, caught)


def kind_of(described: Target | None) -> str:
    """Return JAX's name for the kind of device that is compiled for."""
    return described.device_kind if described else str(jax_module().devices()[0].device_kind)


def main(arguments: list[str]) -> int:
    """Answer the request of `bufdb explain`; return the exit code."""
    return worker.serve(Path(arguments[0]), explained)
