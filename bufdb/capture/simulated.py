"""Devices that a program has in a command that asks about it, in place of those of its job.

As many as the target has, a mesh of other sizes, and one process of several. XLA's CPU simulates
any number of devices in a process. They execute what is before the call, and the program is traced
for them; then it is moved to the target.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bufdb.capture import worker
from bufdb.capture.target import HOST_GPUS, QUIET, device_count, hardware_of
from bufdb.errors import UsageError, quote

NOTES = "simulated"
"""Key under which a child reports what it did not have as its job has it."""
_DEVICES = "BUFDB_DEVICES"
"""Variable of the environment of a child: what `install` reads, as JSON."""

# -- In the process that asks ----------------------------------------------------------------------

_FLAG = "--xla_force_host_platform_device_count"
_COUNT = "JAX_NUM_CPU_DEVICES"
_AXIS = re.compile(r"\s*([^=,\s]+)\s*=\s*([1-9]\d*)\s*")
_TOO_FEW = re.compile(
    r"Number of devices \d+ must .* mesh_shape \(([\d, ]+)\)"
    r"|cannot reshape array of size \d+ into shape \(([\d, ]+)\)"
    r"|cannot select an axis to squeeze out which has size not equal to one, got shape=\((\d+)"
)
"""What make_mesh, mesh_utils, NumPy and pmap raise where there are too few devices."""
_COUNTED = re.compile(r"(?:device_count|devices)\(.*\)(?:.*\n){1,3}\s*(?:Assertion|Index)Error")
_UNEVEN = re.compile(r"should be divisible|evenly divi|IndivisibleError")
_PLATFORM = re.compile(
    r"^(?:(?:importing|evaluating) .* failed: )?RuntimeError: "
    r"(?:Unknown backend|Unable to initialize backend)",
    re.MULTILINE,
)
_LAUNCHERS = ("mpirun", "mpiexec", "srun", "jsrun", "aprun", "flux", "torchrun", "horovodrun")
"""Programs that start several processes of a program."""


@dataclass(frozen=True)
class Devices:
    """The values of --devices and --mesh."""

    count: int | None = None
    """Devices that the program has; by default as many as the target."""
    mesh: Mapping[str, int] = field(default_factory=dict)
    """Sizes of axes of the program's mesh, in place of its own."""

    @classmethod
    def of(cls, count: int | None, mesh: str | None) -> Devices:
        """Return the devices with a mesh such as data=4,model=2.

        Raises:
            UsageError: the text is none.
        """
        sizes: dict[str, int] = {}
        for part in [] if mesh is None else mesh.split(","):
            match = _AXIS.fullmatch(part)
            if match is None or match[1] in sizes:
                raise UsageError(
                    "--mesh wants axes of the program's mesh with sizes, such as "
                    f"data=4,model=2, got {quote(mesh or '')}"
                )
            sizes[match[1]] = int(match[2])
        return cls(count, sizes)

    def require(self, target: str | None) -> None:
        """Check that a mesh of these sizes can have the devices of a target.

        Raises:
            UsageError: it cannot.
        """
        there, where = self._there(target)
        size = math.prod(self.mesh.values())
        if self.mesh and there is not None and there % size:
            raise UsageError(_other_size(_text(self.mesh), size, there, where))

    def variables(self, target: str | None) -> dict[str, str]:
        """Return the environment of a child that compiles for a target, or for its own devices.

        A number of devices that the user has set there is kept, unless --devices names another.
        """
        from bufdb.capture.environment import flags_of

        variables = dict(os.environ)
        if target is not None:
            variables |= QUIET
        elif self.count is not None or self.mesh:
            variables["JAX_PLATFORMS"] = "cpu"
        there, where = self._there(target)
        count = self.count or max(there or 1, math.prod(self.mesh.values()))
        flags = flags_of(variables)
        is_set = _COUNT in variables or any(flag.startswith(_FLAG) for flag in flags)
        is_simulated = self.count is not None or (count > 1 and not is_set)
        # A mesh may have more devices than the program is to know of.
        most = max(count, there or 1, math.prod(self.mesh.values())) if self.mesh else count
        if is_simulated:
            kept = [flag for flag in flags if not flag.startswith(_FLAG)]
            variables["XLA_FLAGS"] = " ".join([*kept, f"{_FLAG}={most}"])
            variables.pop(_COUNT, None)
        fields = {"there": there, "where": where, "mesh": dict(self.mesh)}
        fields["known"] = count if count < most else None
        note = ""
        if is_simulated and count > 1:
            why = "" if self.count or target is None else f", as many as {target}"
            note = f"the program has {count} simulated devices{why}; --devices N for another number"
        return {**variables, _DEVICES: json.dumps({**fields, "note": note})}

    def hint(self, text: str) -> str:
        """Return what to do where a program failed with this text; '' if that is unknown."""
        if (match := _TOO_FEW.search(text)) is not None:
            sizes = next(filter(None, match.groups()))
            number = math.prod(int(size) for size in re.findall(r"\d+", sizes))
            return f"; a --target of {number} devices, or --devices {number}, simulates as many"
        if _COUNTED.search(text) is not None:
            return "; a --target of several devices, or --devices N, simulates as many"
        if _PLATFORM.search(text) is not None:
            return (
                "; up to the call the program runs on the CPU, also for a target: let it name no "
                "platform"
            )
        if self.mesh and _UNEVEN.search(text) is not None:
            return f"; name sizes in --mesh {_text(self.mesh)} that divide the arrays"
        return ""

    def _there(self, target: str | None) -> tuple[int | None, str]:
        """Return how many devices a mesh is of, None for any number, and what has them."""
        count = None if target is None else device_count(target)
        is_gpu = target is not None and isinstance(hardware_of(target), str)
        if count is None or (is_gpu and self.count is not None):
            return self.count, "the program has" if self.count is None else "--devices is"
        return count, f"{target} has"


def require_one_process(words: Sequence[str]) -> None:
    """Refuse a command that starts several processes of a program.

    Raises:
        UsageError: it does.
    """
    at = next((at for at, word in enumerate(words) if "python" in Path(word).name), len(words))
    launcher = next((word for word in words[:at] if Path(word).name in _LAUNCHERS), None)
    if launcher is not None:
        program = shlex.join(words[at:]) or "python train.py"
        raise UsageError(
            f"{launcher} starts several processes; ask about one, with the devices of all of them "
            f"by --target or --devices N: -- {program}"
        )


def _text(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def _other_size(mesh: str, size: int, there: int, where: str) -> str:
    return (
        f"--mesh: {mesh} is {size} device{'s' * (size != 1)}, {where} {there}; name sizes that "
        f"multiply to {there}, or another target"
    )


# -- In the process that has the program -----------------------------------------------------------


class Simulation:
    """What this process has instead of what its program's job has."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """Wrap meshes, numbers of devices, and `jax.distributed.initialize`.

        Args:
            plan: {"mesh": sizes by axis, "there": the number of devices it is of or None, "where":
                what has them, "known": the number that the program knows of if it is less, "note":
                on simulated devices or ''}.
        """
        self._plan = plan
        self._notes: list[str] = []
        self._meshes: list[str] = []
        """Those that the program makes, as text."""
        self._is_met = not plan["mesh"]
        if plan["mesh"] or plan["note"]:
            bridge = importlib.import_module("jax._src.xla_bridge")
            self._wrap_meshes(bridge.devices)
            self._wrap_counts(bridge)
        self._wrap_initialize()

    def require(self) -> None:
        """End this process if the mesh of --mesh is none of the program's."""
        if not self._is_met:
            made = "; ".join(dict.fromkeys(self._meshes)) or "none"
            worker.give_up(
                f"--mesh {_text(self._plan['mesh'])}: no mesh of the program has these axes; name "
                f"axes of one of its meshes: {made}"
            )

    def _note(self, text: str) -> None:
        if text and text not in self._notes:
            self._notes.append(text)
            worker.known({NOTES: self._notes})

    def _wrap_counts(self, bridge: Any) -> None:
        """Take note of a program that counts devices; let it know of some of them."""
        folders = Path(bridge.__file__).parents[1], Path(__file__).parents[1]
        own, most = tuple(f"{folder}{os.sep}" for folder in folders), self._plan["known"]

        def counted(function: Any) -> Any:
            @functools.wraps(function)
            def count(*args: Any, **kwargs: Any) -> Any:
                if not sys._getframe(1).f_code.co_filename.startswith(own):
                    self._note(self._plan["note"])
                known = function(*args, **kwargs)
                if most is None:
                    return known
                return min(known, most) if isinstance(known, int) else known[:most]

            return count

        for name in ("devices", "local_devices", "device_count", "local_device_count"):
            wrapped = counted(getattr(bridge, name))
            for module in (bridge, sys.modules["jax"]):
                if hasattr(module, name):  # not yet, while jax is imported
                    setattr(module, name, wrapped)

    def _wrap_meshes(self, devices_of: Callable[[], Sequence[Any]]) -> None:
        import numpy as np

        kind = importlib.import_module("jax._src.mesh").Mesh
        made = kind.__new__

        @functools.wraps(made)
        def new(cls: Any, devices: Any, axis_names: Any, *args: Any, **kwargs: Any) -> Any:
            own = np.asarray(devices, dtype=object)
            names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
            if own.size and len(names) == own.ndim and own.flat[0] in (there := devices_of()):
                devices = self._devices(own, names, there)
            return made(cls, devices, axis_names, *args, **kwargs)

        kind.__new__ = new

    def _devices(self, own: Any, names: Sequence[str], known: Sequence[Any]) -> Any:
        """Return the devices of a mesh of the program's, with the sizes of --mesh."""
        import numpy as np

        sizes = dict(zip(names, own.shape, strict=True))
        self._meshes.append(_text(sizes))
        wanted, there = self._plan["mesh"], self._plan["there"]
        if wanted and wanted.keys() <= sizes.keys():
            self._is_met = True
            sizes |= wanted
            size = math.prod(sizes.values())
            there = len(known) if there is None else there
            if size != there:
                worker.give_up(_other_size(_text(sizes), size, there, self._plan["where"]))
            if size > len(known):
                worker.give_up(
                    f"--mesh: {_text(sizes)} is {size} devices, the program has {len(known)}; "
                    f"--devices {size} simulates them"
                )
            flat = own.flatten() if own.size == size else np.array(known[:size], dtype=object)
            own = flat.reshape(tuple(sizes.values()))
        if own.size > 1:
            self._note(self._plan["note"])
        return own

    def _wrap_initialize(self) -> None:
        state = getattr(sys.modules.get("jax._src.distributed"), "State", None)

        def initialize(_state: Any, *args: Any, **kwargs: Any) -> None:
            number = kwargs.get("num_processes", args[1] if len(args) > 1 else None)
            of = "" if number is None else f", not {number}"
            where = "" if self._plan["there"] else " (--devices N, or a --target, simulates those)"
            self._note(
                "jax.distributed.initialize does nothing here: the program is one process with all "
                f"devices{where}, and jax.process_count() is 1{of}; what it makes for each "
                "process, such as a batch, is made once"
            )
            _make_whole_arrays(sys.modules["jax"])

        if state is not None:
            state.initialize = initialize


def _make_whole_arrays(jax: Any) -> None:
    """Repeat the data of one process where a program names the shape of that of all."""
    make = jax.make_array_from_process_local_data

    @functools.wraps(make)
    def whole(sharding: Any, local_data: Any, global_shape: Any = None, **kwargs: Any) -> Any:
        if global_shape is not None:
            import numpy as np

            parts = zip(global_shape, np.shape(local_data), strict=False)
            local_data = np.tile(local_data, [size // part for size, part in parts])
        return make(sharding, local_data, global_shape, **kwargs)

    jax.make_array_from_process_local_data = whole


def gpus() -> int:
    """Return how many devices a target has that is a GPU."""
    plan = json.loads(os.environ.get(_DEVICES, "{}"))
    return int(plan.get("there") or HOST_GPUS)


def install() -> Simulation | None:
    """Make a program have the devices that `Devices.variables` of its parent says."""
    plan = os.environ.get(_DEVICES)
    return None if plan is None else Simulation(json.loads(plan))
