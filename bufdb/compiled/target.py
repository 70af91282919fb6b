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

from bufdb.errors import BufdbError, UsageError, quote

FORM = (
    "tpu:v5e:2x2 (generation and topology), gpu:h100 or gpu:FILE (a target configuration of XLA's)"
)
GPUS = 8
"""Devices of a described GPU: one host of them."""
_NO_LOCK = "ALLOW_MULTIPLE_LIBTPU_LOAD"
"""libtpu's variable: that more than one process may load it."""
_NO_DRIVER = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
"""Or the plugin for GPUs gives itself up where CUDA's libraries are not installed."""
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 minor: 0 }
  device_address_bits: 64
  name: "NVIDIA H100 80GB HBM3" device_vendor: "NVIDIA Corporation"
  driver_version: "12.8.0" runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_KNOWN_GPUS = {"h100": _H100}
"""XLA's GpuTargetConfigProto as text, by the name that a user gives."""


@dataclass(frozen=True)
class Target:
    """What to compile for."""

    name: str
    """As it was asked for."""
    platform: str
    """As JAX calls the platform that a function is lowered for: tpu or cuda."""
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
        text: such as "tpu:v5e:2x2", TPUs of a generation in a topology as Google names them; or
            "gpu:h100".

    Raises:
        UsageError: it is no target, or one that the compiler does not know.
        BufdbError: a package is missing.
    """
    kind, _, rest = text.partition(":")
    if kind == "tpu" and rest:
        return Target(text, "tpu", _tpu(text, rest), {})
    if kind == "gpu" and rest:
        return Target(text, "cuda", _gpu(text, rest), {"xla_gpu_autotune_level": 0})
    raise UsageError(f"--target wants {FORM}, got {quote(text)}")


def _tpu(text: str, topology: str) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise BufdbError(
            "to compile for a TPU its compiler is needed, the package libtpu: "
            "pip install 'bufdb[tpu]'"
        )
    # Its lock is for who uses devices; a description needs none, and another process may have it.
    with _switched_on(_NO_LOCK):
        return _described(text, topology, platform="tpu")


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


def _gpu(text: str, file: str) -> Sequence[Any]:
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        raise BufdbError(
            "to compile for a GPU its compiler is needed, the package jax-cuda12-plugin: "
            "pip install 'jax[cuda12]'"
        )
    config = _KNOWN_GPUS.get(file)
    if config is None:
        try:
            config = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"--target {quote(text)}: cannot read {file}: {error.strerror}; known by name: "
                f"{', '.join(_KNOWN_GPUS)}"
            ) from error
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
        raise UsageError(f"--target {quote(text)}: {reason}; expected {FORM}") from error
    return devices
