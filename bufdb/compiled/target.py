"""Hardware that is not at hand: JAX compiles for it ahead of time, from a description.

No device is needed, but the compiler of it is, which is a package of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bufdb.compiled import hardware
from bufdb.errors import BufdbError, UsageError, quote

FORM = (
    "tpu:v5e:2x2 (generation and topology), v5e-8, gpu:h100, gpu:FILE (a target configuration of "
    "XLA's) or cpu"
)
GPUS = 8
"""Devices of a described GPU: one host of them."""
_NO_LOCK = "ALLOW_MULTIPLE_LIBTPU_LOAD"
"""libtpu's variable: that more than one process may load it."""
_NO_DRIVER = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
"""Or the plugin for GPUs gives itself up where CUDA's libraries are not installed."""
_UNTIMED = {"xla_gpu_autotune_level": 0}
"""Without a GPU nothing can be timed."""


@dataclass(frozen=True)
class Target:
    """What to compile for."""

    name: str
    """As it was asked for."""
    platform: str
    """As JAX calls the platform that a function is lowered for: tpu, cuda or cpu."""
    devices: Sequence[Any]
    """Devices that can be compiled for, and no more."""
    options: Mapping[str, Any]
    """Compiler options without which there is no compilation where no device is."""

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
        text: such as "tpu:v5e:2x2", TPUs of a generation in a topology as Google names them; the
            same as "v5e-4" or "v5litepod-4"; "gpu:h100"; or "cpu".

    Raises:
        UsageError: it is no target, or one that the compiler does not know.
        BufdbError: a package is missing.
    """
    named = hardware_of(text)
    if isinstance(named, str):
        return Target(text, "cuda", _gpu(text, named), _UNTIMED)
    if named is None:
        return Target(text, "cpu", jax_module().devices("cpu"), {})
    return Target(text, "tpu", _tpu(text, *named), {})


def hardware_of(text: str) -> str | tuple[str, Mapping[str, str]] | None:
    """What is named: a GPU or a file, a TPU and options for it, None for the CPU.

    Raises:
        UsageError: it is nothing that can be compiled for.
    """
    kind, _, rest = text.strip().partition(":")
    if text.strip().casefold() == "cpu":
        return None
    if kind.casefold() in ("gpu", "cuda") and rest:
        if hardware.gpu(rest) is None and not Path(rest).exists():
            raise UsageError(
                f"--target {quote(text)}: no GPU and no file of that name; {hardware.known_names()}"
            )
        return rest
    if hardware.gpu(text) is not None:
        return text
    found = hardware.tpu(text)
    if found is None:
        raise UsageError(f"--target wants {FORM}, got {quote(text)}; {hardware.known_names()}")
    return found


def _tpu(text: str, topology: str, options: Mapping[str, str]) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise BufdbError(
            "to compile for a TPU its compiler is needed, the package libtpu: "
            "pip install 'bufdb[tpu]'"
        )
    # Its lock is for who uses devices; a description needs none, and another process may have it.
    with _switched_on(_NO_LOCK):
        return _described(text, topology, platform="tpu", **options)


@contextmanager
def _switched_on(name: str) -> Iterator[None]:
    """A variable of the environment, 1 within the block."""
    given = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


def _gpu(text: str, name: str) -> Sequence[Any]:
    known = hardware.gpu(name)
    if known is None:
        try:
            config = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"--target {quote(text)}: cannot read {name}: {error.strerror}; "
                f"{hardware.known_names()}"
            ) from error
    else:
        config = known.config()
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        raise BufdbError(
            "to compile for a GPU its compiler is needed, the package jax-cuda12-plugin: "
            "pip install 'jax[cuda12]'"
        )
    with _switched_on(_NO_DRIVER):
        jax_module().devices()  # lets JAX find its plugins
    return _described(
        text, "described", platform="cuda", target_config=config, topology=f"1x1x{GPUS}"
    )


def _described(text: str, name: str, /, **how: Any) -> Sequence[Any]:
    """Devices of a description.

    Raises:
        UsageError: the compiler does not know it.
    """
    jax_module()
    topologies = importlib.import_module("jax.experimental.topologies")
    try:
        devices: Sequence[Any] = topologies.get_topology_desc(name, **how).devices
    except Exception as error:  # JAX's own class of errors moved between its versions
        reason = str(error).strip().split("\n")[0][:200]
        raise UsageError(f"--target {quote(text)}: {reason}; {hardware.known_names()}") from error
    return devices
