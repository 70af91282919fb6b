"""What a process has in place of the devices and the processes of its program's job.

The environment has it, as `Devices.variables` of `bufdb.capture.simulated` makes it.
`bufdb.blame.script` loads this file in environments without bufdb, so it is Python 3.9 and imports
nothing of bufdb.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

DEVICES = "BUFDB_DEVICES"
"""Variable of the environment that `install` reads, as JSON."""
NOTES = "simulated"
"""Key under which a child reports what it did not have as its job has it."""


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return sizes by axis as --mesh has them."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def other_size(mesh: str, size: int, there: int, where: str) -> str:
    """Return the message on a mesh that has not as many devices as there are."""
    return (
        f"--mesh: {mesh} is {size} device{'s' * (size != 1)}, {where} {there}; name sizes that "
        f"multiply to {there}, or another target"
    )


class Simulation:
    """What this process has instead of what its program's job has."""

    def __init__(self, worker: Any, plan: Mapping[str, Any]) -> None:
        """Wrap meshes, numbers of devices, and `jax.distributed.initialize`.

        Args:
            worker: the module `bufdb.capture.worker` of this process.
            plan: {"mesh": sizes by axis, "there": the number of devices it is of or None, "where":
                what has them, "known": the number that the program knows of if it is less, "note":
                on simulated devices or '', "how": options that simulate others}.
        """
        self._worker, self._plan = worker, plan
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
            self._worker.give_up(
                f"--mesh {sizes_text(self._plan['mesh'])}: no mesh of the program has these axes; "
                f"name axes of one of its meshes: {made}"
            )

    def _note(self, text: str) -> None:
        if text and text not in self._notes:
            self._notes.append(text)
            self._worker.known({NOTES: self._notes})

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

        sizes = dict(zip(names, own.shape))  # noqa: B905 - Python 3.9
        self._meshes.append(sizes_text(sizes))
        wanted, there = self._plan["mesh"], self._plan["there"]
        if wanted and wanted.keys() <= sizes.keys():
            self._is_met = True
            sizes |= wanted
            size = math.prod(sizes.values())
            there = len(known) if there is None else there
            if size != there:
                self._worker.give_up(
                    other_size(sizes_text(sizes), size, there, self._plan["where"])
                )
            if size > len(known):
                self._worker.give_up(
                    f"--mesh: {sizes_text(sizes)} is {size} devices, the program has {len(known)}; "
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
            where = "" if self._plan["there"] else f" ({self._plan['how']} simulates those)"
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
    make = getattr(jax, "make_array_from_process_local_data", None)
    if make is None:  # an older JAX
        return

    @functools.wraps(make)
    def whole(sharding: Any, local_data: Any, global_shape: Any = None, **kwargs: Any) -> Any:
        if global_shape is not None:
            import numpy as np

            parts = zip(global_shape, np.shape(local_data))  # noqa: B905
            local_data = np.tile(local_data, [size // part for size, part in parts])
        return make(sharding, local_data, global_shape, **kwargs)

    jax.make_array_from_process_local_data = whole


def install(worker: Any) -> Optional[Simulation]:  # noqa: UP045 - Python 3.9
    """Make a program have the devices that `Devices.variables` of its parent says.

    Args:
        worker: the module `bufdb.capture.worker` of this process.
    """
    plan = os.environ.get(DEVICES)
    return None if plan is None else Simulation(worker, json.loads(plan))
