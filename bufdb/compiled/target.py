"""Hardware that is not at hand: JAX compiles for it ahead of time, from a description.

No device is needed, but the compiler of it is, which is a package of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bufdb.errors import BufdbError, UsageError, quote

FORM = "tpu:v5e:2x2 (generation and topology) or gpu:FILE (a target configuration of XLA's)"


@dataclass(frozen=True)
class Target:
    """What to compile for."""

    name: str
    """As it was asked for."""
    platform: str
    """As JAX calls the platform that a function is lowered for: tpu or cuda."""
    devices: Sequence[Any]
    """Devices that can be compiled for, and no more."""

    @property
    def device_kind(self) -> str:
        """What JAX calls a device of it, such as "TPU v5 lite"."""
        return str(self.devices[0].device_kind)


def jax_module() -> Any:
    """The module jax.

    Raises:
        BufdbError: it is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise BufdbError(
            "JAX is not installed in this Python; install bufdb where the program runs, or "
            "pip install 'bufdb[jax]'"
        )
    return importlib.import_module("jax")


def target(text: str) -> Target:
    """The hardware of a name.

    Args:
        text: such as "tpu:v5e:2x2": TPUs of a generation, in a topology as Google names them.

    Raises:
        UsageError: it is no target, or one that the compiler does not know.
        BufdbError: a package is missing.
    """
    kind, _, rest = text.partition(":")
    if kind == "tpu" and rest:
        return Target(text, "tpu", _tpu(text, rest))
    if kind == "gpu" and rest:
        return Target(text, "cuda", _gpu(text, rest))
    raise UsageError(f"--target wants {FORM}, got {quote(text)}")


def _tpu(text: str, topology: str) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise BufdbError(
            "to compile for a TPU its compiler is needed, the package libtpu: "
            "pip install 'bufdb[tpu]'"
        )
    return _described(text, topology, platform="tpu")


def _gpu(text: str, file: str) -> Sequence[Any]:
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        raise BufdbError(
            "to compile for a GPU its compiler is needed, the package jax-cuda12-plugin: "
            "pip install 'jax[cuda12]'"
        )
    try:
        config = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--target {quote(text)}: cannot read {file}: {error.strerror}") from error
    return _described(text, "", platform="cuda", target_config=config)


def _described(text: str, topology: str, **how: Any) -> Sequence[Any]:
    """Devices of a description.

    Raises:
        UsageError: the compiler does not know it.
    """
    jax_module()
    topologies = importlib.import_module("jax.experimental.topologies")
    try:
        devices: Sequence[Any] = topologies.get_topology_desc(topology, **how).devices
    except Exception as error:  # JAX's own class of errors moved between its versions
        reason = str(error).strip().split("\n")[0][:200]
        raise UsageError(f"--target {quote(text)}: {reason}; expected {FORM}") from error
    return devices
