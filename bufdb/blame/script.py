"""Compile one function and dump it: run as a file, by any Python from 3.9 on with any jax.

The environments of `bufdb blame` have only jax, so nothing of bufdb is imported except the files
`call.py`, `callbacks.py`, `simulation.py` and `worker.py` of `bufdb/capture`; the process of a
user's command imports this file as a module. Dump options go to XLA as compiler options, not as
XLA_FLAGS: so the function is dumped, and not what its file compiles when it is imported. What the
user asks for goes as XLA_FLAGS (and LIBTPU_INIT_ARGS), which refuse an unknown name and take lists.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

_SETTINGS = (
    "optimization_level",
    "memory_fitting_level",
    "exec_time_optimization_effort",
    "memory_fitting_effort",
)
"""Flags that are settings of JAX, besides those that begin with jax_."""
_NEW_FIELDS = (
    r"thread_dim_limit_\w|device_address_bits|name|device_vendor|driver_version|runtime_version|"
    "compile_time_toolkit_version|dnn_version"
)
_BOOLS = {"true": "True", "false": "False"}
"""As compiler options have them."""


def _load(name: str) -> Any:
    """Return a module of bufdb.capture, from its file: no folder of bufdb is on the path.

    In a process of a user's command it is that of bufdb.
    """
    if (loaded := sys.modules.get(f"bufdb.capture.{name}")) is not None:
        return loaded
    path = Path(__file__).parent.parent / "capture" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bufdb_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


call, callbacks = _load("call"), _load("callbacks")
simulation, worker = _load("simulation"), _load("worker")


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of `bufdb.blame.runs` about a function of a file."""
    target = request["target"]
    is_tpu = target is not None and target["platform"] == "tpu"
    os.environ.update(flags(request["options"], os.environ, is_tpu=is_tpu))
    with worker.step("importing jax"):
        jax: Any = importlib.import_module("jax")
    for name, value in request["options"].items():
        if is_setting(name):
            with worker.step(f"setting {name}={value}"):
                jax.config.update(setting(name), _read(value))
    return _answered(request, None, simulation.install(worker))


def answers(caught: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers a request about a call of a user's command, whose flags are set."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        for name, value in request["options"].items():
            if is_setting(name):
                _require_set(name, value)
        return _answered(request, caught)

    return answer


def _answered(request: dict[str, Any], caught: Any, simulating: Any = None) -> dict[str, Any]:
    folder, target = Path(request["folder"]), request["target"]
    devices = _devices(target)
    kind = str(devices[0].device_kind)
    if devices[0].platform != "tpu" and any(
        name.startswith("xla_tpu_") for name in request["options"]
    ):
        raise worker.Failed(f"flags of a TPU are not for {kind}")
    if request["module"]:
        lowered = _of_module(request, devices)
    elif caught is not None:
        lowered = _of_call(caught, request, devices, folder)
    else:
        lowered = _of_source(request, devices, folder)
        if simulating is not None:
            simulating.require()
    reply: dict[str, Any] = {"versions": _versions(), "device": kind, "refusal": None}
    worker.known(reply)
    with worker.step(f"compiling {request['spec']}"):
        return {**reply, **_compiled(lowered, request, folder / "dumps")}


def flags(
    options: Mapping[str, str], variables: Mapping[str, str], *, is_tpu: bool
) -> dict[str, str]:
    """Return what XLA reads from the environment when it is imported."""
    changed = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    for name, value in options.items():
        if name.startswith("xla_"):
            # A TPU's compiler reads its flags from a variable of its own.
            is_its = is_tpu or name.startswith("xla_tpu_")
            variable = "LIBTPU_INIT_ARGS" if is_its else "XLA_FLAGS"
            before = changed.get(variable, variables.get(variable, ""))
            changed[variable] = f"{before} --{name}={value}".strip()
    return changed


def is_setting(name: str) -> bool:
    """Return whether an option is a setting of JAX."""
    return name.startswith("jax_") or name in _SETTINGS


def setting(name: str) -> str:
    """Return JAX's name of a setting."""
    return name if name.startswith("jax_") else f"jax_{name}"


def _require_set(name: str, value: str) -> None:
    """Require that a setting of the environment is known to JAX, and holds at the call."""
    jax: Any = importlib.import_module("jax")
    with worker.step(f"setting {name}={value}"):
        holding = getattr(jax.config, setting(name))
    if type(holding) in (bool, int, str) and holding != _read(value):
        raise worker.Failed(f"the command sets {name} itself, to {holding}")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("jax", "jaxlib", "libtpu"):
        if (version := _version(name)) is not None:
            versions[name] = version
    return versions


def _compiled(lowered: Any, request: dict[str, Any], dumps: Path) -> dict[str, Any]:
    """Compile with dumps to a folder; return the need, or XLA's refusal once it had planned."""
    target = request["target"]
    options: dict[str, Any] = {
        name: _BOOLS.get(value, value)
        for name, value in request["options"].items()
        if not name.startswith("xla_") and not is_setting(name)
    }
    options.update(target["options"] if target else {})
    options.update(xla_dump_to=str(dumps), xla_dump_hlo_as_text=True, xla_dump_hlo_module_re=".*")
    if request["passes"]:
        options["xla_dump_hlo_pass_re"] = ".*"
    try:
        compiled = lowered.compile(compiler_options=options)
    except Exception as error:  # JAX's class of errors moved; raised again if nothing was planned
        if not list(dumps.glob("*-buffer-assignment.txt")):
            raise
        return {"refusal": " ".join(str(error).split())[:400]}
    return {"need_bytes": _need(compiled)}


def _devices(target: Optional[dict[str, Any]]) -> Any:  # noqa: UP045 - Python 3.9
    """Return the devices to compile for: of a target, or of this machine."""
    jax: Any = importlib.import_module("jax")
    if target is None:
        with worker.step("starting jax"):
            return jax.devices()
    with worker.step(f"describing {target['platform']}"):
        if target["platform"] != "tpu":
            jax.devices()  # lets JAX find its plugins
        topologies = importlib.import_module("jax.experimental.topologies")
        how = {"platform": target["platform"], **target["how"]}
        try:
            return topologies.get_topology_desc(target["name"], **how).devices
        except Exception:  # of the plugin's own class; raised again unless fields can be left out
            if "target_config" not in how:
                raise
            # jax 0.9 and before do not know these fields of a GPU, which say nothing of its memory.
            unknown = rf"\b(?:{_NEW_FIELDS}): (?:\"[^\"]*\"|\S+)"
            how["target_config"] = re.sub(unknown, "", how["target_config"])
            return topologies.get_topology_desc(target["name"], **how).devices


def _lowered(jitted: Any, args: Any, kwargs: Any, devices: Any, request: dict[str, Any]) -> Any:
    """Lower for the devices; arguments on a mesh are put on one with the same axes."""
    platform = None if request["target"] is None else request["target"]["platform"]
    where = platform, devices, "the target"
    return callbacks.unbound(platform, lambda: call.lowered(jitted, args, kwargs, *where))


def _read(value: str) -> Any:
    """Return a number or a truth value; other text as it is."""
    try:
        return json.loads(value.lower())
    except ValueError:
        return value


def _version(package: str) -> Optional[str]:  # noqa: UP045 - Python 3.9
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _need(compiled: Any) -> Optional[int]:  # noqa: UP045 - Python 3.9
    """Return arguments, results and temps of a compiled function; None where JAX does not say."""
    stats = compiled.memory_analysis()
    try:
        parts = (
            stats.argument_size_in_bytes,
            stats.output_size_in_bytes,
            -stats.alias_size_in_bytes,
            stats.temp_size_in_bytes,
        )
    except AttributeError:
        return None
    is_known = all(part >= 0 for part in (*parts[:2], -parts[2], parts[3]))  # -1 is "unknown"
    return int(sum(parts)) if is_known else None


def _of_call(caught: Any, request: dict[str, Any], devices: Any, folder: Path) -> Any:
    """Lower the call of a command; also export it, if that is asked for."""
    args, kwargs = caught.args, dict(caught.kwargs)
    with worker.step(f"tracing {caught.call.name}"):
        lowered = _lowered(caught.function, args, kwargs, devices, request)
    if request["export"]:
        with worker.step(f"exporting {caught.call.name}"):
            _export(caught.function, args, kwargs, lowered, request, folder)
    return lowered


def _of_source(request: dict[str, Any], devices: Any, folder: Path) -> Any:
    """Lower the function of a file; also export it, if that is asked for."""
    jax: Any = importlib.import_module("jax")
    spec = request["spec"]
    place, name = call.split(spec)
    with worker.step(f"importing {place}"):
        module = call.module(place)
    with worker.step(f"evaluating {name} of {place}"):
        function = call.function(module, place, name)
    divisors = {int(size): by for size, by in request.get("divisors", {}).items()}
    with worker.step(f"evaluating --args for {spec}"):
        args, kwargs = call.arguments(request["args"], vars(module)).of(function, name)
        args, kwargs = _divided((args, kwargs), divisors)
    with worker.step(f"tracing {spec}"):
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        lowered = _lowered(jitted, args, kwargs, devices, request)
    leaves = [x for x in jax.tree_util.tree_leaves((args, kwargs)) if hasattr(x, "shape")]
    sizes = sorted({size for leaf in leaves for size in leaf.shape if size > 1}, reverse=True)
    (folder / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")
    if request["export"]:
        with worker.step(f"exporting {spec}"):
            _export(jitted, args, kwargs, lowered, request, folder)
    return lowered


def _divided(tree: Any, divisors: dict[int, int]) -> Any:
    """Return arguments with each size of a dimension divided by its divisor."""
    jax: Any = importlib.import_module("jax")

    def divide(leaf: Any) -> Any:
        if not divisors or not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        shape = tuple(size // divisors.get(size, 1) for size in leaf.shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=getattr(leaf, "sharding", None))

    return jax.tree_util.tree_map(divide, tree)


def _export(
    jitted: Any, args: Any, kwargs: Any, lowered: Any, request: dict[str, Any], folder: Path
) -> None:
    """Write the StableHLO and what of it another version needs; or why that cannot be."""
    jax: Any = importlib.import_module("jax")
    (folder / "stablehlo.mlir").write_text(lowered.as_text(), encoding="utf-8")
    try:
        export = importlib.import_module("jax.export")
        target = request["target"]
        platforms = None if target is None else [target["platform"]]
        exported = export.export(jitted, platforms=platforms)(*args, **kwargs)
        data = bytes(exported.serialize())
        infos = jax.tree_util.tree_leaves(
            lowered.args_info, is_leaf=lambda x: hasattr(x, "donated")
        )
        donated = [at for at, info in enumerate(infos) if getattr(info, "donated", False)]
        if donated and len(infos) != len(exported.in_avals):
            raise ValueError("not all arguments are in the exported function")
    except Exception as error:  # whatever it is becomes the reason of "cannot tell"
        text = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        (folder / "export.error").write_text(text, encoding="utf-8")
        return
    (folder / "donated.json").write_text(json.dumps(donated), encoding="utf-8")
    (folder / "module.bin").write_bytes(data)


def _of_module(request: dict[str, Any], devices: Any) -> Any:
    """Lower a function that another version has exported."""
    jax: Any = importlib.import_module("jax")
    export = importlib.import_module("jax.export")
    place = Path(request["module"])
    with worker.step(f"tracing the StableHLO of {request['spec']}"):
        exported = export.deserialize(bytearray((place / "module.bin").read_bytes()))
        donated = json.loads((place / "donated.json").read_text(encoding="utf-8"))

        def run(*leaves: Any) -> Any:
            args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, leaves)
            return exported.call(*args, **kwargs)

        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
        return _lowered(jax.jit(run, donate_argnums=tuple(donated)), shapes, {}, devices, request)


if __name__ == "__main__":
    # The folder of this file, which Python puts first: its modules must not hide others.
    sys.path = [item for item in sys.path if item != str(Path(__file__).parent)]
    worker.end(worker.serve(Path(sys.argv[1]), main))
