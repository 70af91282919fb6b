"""Devices that a program has in a command that asks about it, in place of those of its job.

As many as the target has, a mesh of other sizes, and one process of several. XLA's CPU simulates
any number of devices in a process. They execute what is before the call, and the program is traced
for them; then it is moved to the target.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bufdb.capture.simulation import DEVICES, other_size, sizes_text
from bufdb.capture.target import HOST_GPUS, QUIET, device_count, hardware_of
from bufdb.errors import UsageError, quote

_DEVICES, _MESH = "devices", "mesh"
"""Metadata of a run."""
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
    has_target: bool = True
    """Whether the command that asks has --target."""

    @classmethod
    def of(cls, count: int | None, mesh: str | None, *, has_target: bool = True) -> Devices:
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
        return cls(count, sizes, has_target)

    @classmethod
    def of_run(cls, metadata: Mapping[str, str]) -> Devices:
        """Return the devices of a run with this metadata."""
        count = metadata.get(_DEVICES, "")
        return cls.of(int(count) if count.isdecimal() else None, metadata.get(_MESH))

    @property
    def metadata(self) -> dict[str, str]:
        """Return the metadata of a run of these devices."""
        texts = {_DEVICES: str(self.count or ""), _MESH: sizes_text(self.mesh)}
        return {name: text for name, text in texts.items() if text}

    @property
    def words(self) -> list[str]:
        """Return the options with their values."""
        return [word for name, text in self.metadata.items() for word in (f"--{name}", text)]

    def require(self, target: str | None) -> None:
        """Check that a mesh of these sizes can have the devices of a target.

        Raises:
            UsageError: it cannot.
        """
        there, where = self._there(target)
        size = math.prod(self.mesh.values())
        if self.mesh and there is not None and there % size:
            raise UsageError(other_size(sizes_text(self.mesh), size, there, where))

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
        fields |= {"note": note, "how": "--devices N" + ", or a --target," * self.has_target}
        return {**variables, DEVICES: json.dumps(fields)}

    def hint(self, text: str) -> str:
        """Return what to do where a program failed with this text; '' if that is unknown."""
        if (match := _TOO_FEW.search(text)) is not None:
            sizes = next(filter(None, match.groups()))
            number = math.prod(int(size) for size in re.findall(r"\d+", sizes))
            return self._more(f"{number} devices", str(number))
        if _COUNTED.search(text) is not None:
            return self._more("several devices", "N")
        if _PLATFORM.search(text) is not None:
            return (
                "; up to the call the program runs on the CPU, also for a target: let it name no "
                "platform"
            )
        if self.mesh and _UNEVEN.search(text) is not None:
            return f"; name sizes in --mesh {sizes_text(self.mesh)} that divide the arrays"
        return ""

    def _more(self, devices: str, number: str) -> str:
        target = f"a --target of {devices}, or " if self.has_target else ""
        comma = "," if self.has_target else ""
        return f"; {target}--devices {number}{comma} simulates as many"

    def gpus(self, target: str) -> int:
        """Return how many devices a target has that is a GPU."""
        return self._there(target)[0] or HOST_GPUS

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


def gpus() -> int:
    """Return how many devices a target has that is a GPU."""
    plan = json.loads(os.environ.get(DEVICES, "{}"))
    return int(plan.get("there") or HOST_GPUS)
