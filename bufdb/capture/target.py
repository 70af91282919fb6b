"""Targets by name: the TPU topology or GPU description that is compiled for."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bufdb.errors import BufdbError, UsageError, quote

# -- Hardware that can be compiled for without a device, by common names ---------------------------
#
# Invariant: nothing here imports JAX or depends on which of its packages are installed.

_TPU = re.compile(
    r"(?:cloud\s+)?(?P<prefix>tpu[\s:_-]*)?(?P<name>[a-z0-9\s_-]+?)"
    r"(?:[\s:_=-]+(?P<topology>\d+(?:x\d+)+)|[-:](?P<count>\d+))?"
)
"""v5e, tpu:v5e:2x2, v5litepod-8, TPU v5 lite, tpu7x-8."""
_SLICE = re.compile(r"(podslice|slice|pod)$")
_AMD = re.compile(r"(amd)?(instinct)?mi\d+\w*")
_NOISE = re.compile(r"[\s_-]|nvidia|tesla|^rtx")
"""Parts of a GPU's name to ignore."""
_KIB, _MIB = 2**10, 2**20
_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: {shared_bytes}
  shared_memory_per_block_optin: {optin_bytes}
  threads_per_core_limit: {threads} core_count: {cores} fpus_per_core: {units}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {bandwidth} l2_cache_size: {l2_bytes}
  clock_rate_ghz: {clock_ghz} device_memory_size: {memory_bytes}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  device_address_bits: 64
  name: "{kind}" device_vendor: "NVIDIA Corporation"
  driver_version: "12.8.0" runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{kind}"
"""


@dataclass(frozen=True)
class Tpu:
    """A generation of TPUs."""

    name: str
    """libtpu's name."""
    names: tuple[str, ...]
    """Users' names without spaces and dashes; the first is shown."""
    dimensions: int
    """Number of dimensions of a topology."""
    counted: int
    """How many of N in NAME-N each chip counts for: its cores, or 1."""
    devices: int = 1
    """Devices that JAX finds on each chip."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options with which libtpu describes devices as JAX finds them on that hardware."""

    def nearest(self, count: int) -> str:
        """Return the names of slices next to one of `count` that does not exist."""
        power = (max(count, 1) // self.counted).bit_length()
        counts = [self.counted << at for at in (power - 1, power) if at >= 0]
        return " and ".join(f"{self.names[0]}-{one}" for one in counts)

    def topology(self, chips: int) -> str | None:
        """Return the usual topology of `chips` (2x2, 2x4, 2x2x4); None unless a power of two."""
        power = chips.bit_length() - 1
        if chips != 1 << power:
            return None
        sides = [1 << ((power + at) // self.dimensions) for at in range(self.dimensions)]
        if chips < 1 << self.dimensions:  # 2x2x1, not 1x2x2
            sides.sort(reverse=True)
        return "x".join(map(str, sides))


TPUS = (
    Tpu("v2", ("v2",), 2, 2, 2),
    Tpu("v3", ("v3",), 2, 2, 2),
    Tpu("v4", ("v4",), 3, 2, options={"chip_config_name": "megacore"}),
    Tpu("v5e", ("v5e", "v5lite"), 2, 1),
    Tpu("v5p", ("v5p", "v5"), 3, 2),
    Tpu("v6e", ("v6e", "v6", "v6lite", "trillium"), 2, 1),
    Tpu("tpu7x", ("v7x", "v7", "7x", "tpu7x", "ironwood"), 3, 2, 2),
)
HOST_CHIPS = 4
"""Chips of a TPU that is named without a number."""


def tpu(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Return name and options of a topology for libtpu from a user's text; None if not a TPU.

    Raises:
        UsageError: it is a TPU, but not of an existing size.
    """
    match = _TPU.fullmatch(text.strip().casefold())
    if match is None:
        return None
    name = _SLICE.sub("", re.sub(r"[\s_-]", "", match["name"]))
    known = next((one for one in TPUS if name in one.names), None)
    if known is None:
        # A libtpu that is newer than this table may know it.
        is_plain = match["prefix"] and match["topology"]
        return (f"{name}:{match['topology']}", {}) if is_plain else None
    topology = match["topology"]
    if topology is None:
        count = int(match["count"] or HOST_CHIPS * known.counted)
        chips, rest = divmod(count, known.counted)
        topology = None if rest or not chips else known.topology(chips)
        if topology is None:
            what = "cores, two of each chip" if known.counted > 1 else "chips"
            example = known.topology(HOST_CHIPS)
            raise UsageError(
                f"--target {quote(text)}: {known.names[0]}-N counts {what}, and chips must be "
                f"a power of two, the nearest {known.nearest(count)}; or name the topology, such "
                f"as tpu:{known.name}:{example}"
            )
    return f"{known.name}:{topology}", known.options


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU."""

    names: tuple[str, ...]
    """Users' names, normalized by `folded`; the first is shown."""
    kind: str
    """JAX's name for the device kind."""
    capability: tuple[int, int]
    cores: int
    """Multiprocessors."""
    units: int
    """f32 units per multiprocessor."""
    threads: int
    """Maximum threads per multiprocessor."""
    shared_bytes: int
    """Shared memory per multiprocessor."""
    l2_bytes: int
    bandwidth: int
    """Memory bandwidth [bytes per second]."""
    clock_ghz: float
    memory_bytes: int

    def config(self) -> str:
        """Return XLA's GpuTargetConfigProto for it as text."""
        major, minor = self.capability
        # From Ampere on, CUDA reserves 1 KiB of each block's shared memory.
        optin_bytes = self.shared_bytes - (1024 if major >= 8 else 0)
        return _CONFIG.format(**vars(self), major=major, minor=minor, optin_bytes=optin_bytes)


# Compute capability, multiprocessors, shared memory and caches are those that NVIDIA publishes and
# CUDA reports; XLA takes them as a GpuTargetConfigProto. Each was tested with the plugin for CUDA
# 12. A ptxas on the path must know the GPU: that of CUDA 13 no longer supports the V100 (XLA has
# planned the memory by the time it finds out), that of 12.8 does not know the B300.
GPUS = (
    Gpu(
        ("v100", "v10016gb"),
        *("Tesla V100-SXM2-16GB", (7, 0), 80, 64, 2048, 96 * _KIB, 6 * _MIB),
        *(898_048_000_000, 1.53, 16_935_682_048),
    ),
    Gpu(
        ("v100-32gb",),
        *("Tesla V100-SXM2-32GB", (7, 0), 80, 64, 2048, 96 * _KIB, 6 * _MIB),
        *(898_048_000_000, 1.53, 34_079_899_648),
    ),
    Gpu(
        ("t4",),
        *("Tesla T4", (7, 5), 40, 64, 1024, 64 * _KIB, 4 * _MIB),
        *(320_064_000_000, 1.59, 15_828_320_256),
    ),
    Gpu(
        ("a100", "a10080gb", "a100sxm80gb"),
        *("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 2048, 164 * _KIB, 40 * _MIB),
        *(2_039_040_000_000, 1.41, 85_100_068_864),
    ),
    Gpu(
        ("a100-40gb", "a100sxm40gb"),
        *("NVIDIA A100-SXM4-40GB", (8, 0), 108, 64, 2048, 164 * _KIB, 40 * _MIB),
        *(1_555_200_000_000, 1.41, 42_331_013_120),
    ),
    Gpu(
        ("a10",),
        *("NVIDIA A10", (8, 6), 72, 128, 1536, 100 * _KIB, 6 * _MIB),
        *(600_096_000_000, 1.695, 23_835_181_056),
    ),
    Gpu(
        ("a6000",),
        *("NVIDIA RTX A6000", (8, 6), 84, 128, 1536, 100 * _KIB, 6 * _MIB),
        *(768_096_000_000, 1.8, 51_041_271_808),
    ),
    Gpu(
        ("l4",),
        *("NVIDIA L4", (8, 9), 58, 128, 1536, 100 * _KIB, 48 * _MIB),
        *(300_096_000_000, 2.04, 24_152_899_584),
    ),
    Gpu(
        ("l40s",),
        *("NVIDIA L40S", (8, 9), 142, 128, 1536, 100 * _KIB, 96 * _MIB),
        *(864_096_000_000, 2.52, 48_305_799_168),
    ),
    Gpu(
        ("h100", "h10080gb", "h100sxm", "h100sxm80gb"),
        *("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 2048, 228 * _KIB, 50 * _MIB),
        *(3_352_320_000_000, 1.98, 84_942_979_072),
    ),
    Gpu(
        ("h200", "h200141gb", "h200sxm"),
        *("NVIDIA H200", (9, 0), 132, 128, 2048, 228 * _KIB, 50 * _MIB),
        *(4_800_000_000_000, 1.98, 151_397_597_184),
    ),
    Gpu(
        ("gh200",),
        *("NVIDIA GH200 480GB", (9, 0), 132, 128, 2048, 228 * _KIB, 50 * _MIB),
        *(4_000_000_000_000, 1.98, 102_625_181_696),
    ),
    Gpu(
        ("b200",),
        *("NVIDIA B200", (10, 0), 148, 128, 2048, 228 * _KIB, 132_644_864),
        *(7_672_320_000_000, 1.965, 191_514_411_008),
    ),
    Gpu(
        ("gb200",),
        *("NVIDIA GB200", (10, 0), 152, 128, 2048, 228 * _KIB, 135_528_448),
        *(7_928_064_000_000, 2.062, 197_897_748_480),
    ),
    Gpu(
        ("b300",),
        *("NVIDIA B300", (10, 3), 158, 128, 2048, 228 * _KIB, 135_528_448),
        *(7_936_000_000_000, 1.965, 297_021_865_984),
    ),
)


def folded(name: str) -> str:
    """Return a GPU's name in lower case without spaces, dashes and vendor."""
    return _NOISE.sub("", name.casefold())


def gpu(name: str) -> Gpu | None:
    """Return the GPU of a name such as "a100", "A100-40GB" or "NVIDIA H100 80GB HBM3", or None.

    Raises:
        UsageError: it is an AMD GPU.
    """
    wanted = folded(name)
    for known in GPUS:
        if wanted in (folded(text) for text in (*known.names, known.kind)):
            return known
    if _AMD.fullmatch(wanted):
        raise UsageError(
            f"--target {quote(name)}: ahead of time bufdb compiles only for NVIDIA's GPUs; "
            f"{known_names()}"
        )
    return None


def known_names() -> str:
    """Return the supported names, in one line."""
    tpus = ", ".join(one.names[0] for one in TPUS)
    gpus = ", ".join(one.names[0] for one in GPUS)
    return (
        f"known: cpu, the TPUs {tpus} (as v5e, v5e-8 or tpu:v5e:2x4) and the GPUs {gpus} "
        "(as h100 or gpu:h100)"
    )


# -- Hardware that is not at hand: JAX compiles for it ahead of time, from a description -----------
#
# No device is needed, but the compiler of it is, which is a package of its own.

FORM = (
    "tpu:v5e:2x2 (generation and topology), v5e-8, gpu:h100, gpu:FILE (a target configuration of "
    "XLA's) or cpu"
)
HOST_GPUS = 8
"""Devices in the description of a GPU, unless another number is wanted: one host."""
_NO_LOCK = "ALLOW_MULTIPLE_LIBTPU_LOAD"
"""libtpu's variable that lets more than one process load it."""
_NO_DRIVER = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
"""Without it, the GPU plugin refuses to load where CUDA's libraries are not installed."""
_UNTIMED = {"xla_gpu_autotune_level": 0}
"""Without a GPU, autotuning has nothing to time."""


QUIET = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
"""For a target: keeps JAX from searching for devices, locally and in the cloud."""


@dataclass(frozen=True)
class Target:
    """The hardware to compile for."""

    name: str
    """The name as given."""
    platform: str
    """JAX's name of the platform to lower for: tpu, cuda or cpu."""
    devices: Sequence[Any]
    """Devices that can be compiled for, but not used."""
    options: Mapping[str, Any]
    """Compiler options that compilation without a device needs."""

    @property
    def device_kind(self) -> str:
        """JAX's name for the device kind, such as "TPU v5 lite"."""
        return str(self.devices[0].device_kind)


def jax_module() -> Any:
    """Return the module jax.

    Raises:
        BufdbError: it is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise BufdbError(
            "JAX is not installed in this Python; install bufdb where the program runs, or "
            "pip install 'bufdb[jax]'"
        )
    return importlib.import_module("jax")


def target(text: str, gpus: int = HOST_GPUS) -> Target:
    """Return the hardware with a name.

    Args:
        text: such as "tpu:v5e:2x2", TPUs of a generation in a topology in Google's notation; the
            same as "v5e-4" or "v5litepod-4"; "gpu:h100"; or "cpu".
        gpus: how many of a GPU, in hosts of eight.

    Raises:
        UsageError: it is not a target, or one that the compiler does not know.
        BufdbError: a package is missing.
    """
    named = hardware_of(text)
    if isinstance(named, str):
        return Target(text, "cuda", _gpu(text, named, gpus), _UNTIMED)
    if named is None:
        return Target(text, "cpu", jax_module().devices("cpu"), {})
    return Target(text, "tpu", _tpu(text, *named), {})


def hardware_of(text: str) -> str | tuple[str, Mapping[str, str]] | None:
    """Return the hardware named: a GPU or a file, a TPU and its options, or None for the CPU.

    Raises:
        UsageError: it cannot be compiled for.
    """
    kind, _, rest = text.strip().partition(":")
    if text.strip().casefold() == "cpu":
        return None
    if kind.casefold() in ("gpu", "cuda") and rest:
        if gpu(rest) is None and not Path(rest).exists():
            raise UsageError(
                f"--target {quote(text)}: no GPU and no file of that name; {known_names()}"
            )
        return rest
    if gpu(text) is not None:
        return text
    topology = tpu(text)
    if topology is None:
        raise UsageError(f"--target wants {FORM}, got {quote(text)}; {known_names()}")
    return topology


def device_count(text: str) -> int | None:
    """Return how many devices a target has; None for the CPU, and for TPUs that are unknown here.

    Raises:
        UsageError: it cannot be compiled for.
    """
    named = hardware_of(text)
    if not isinstance(named, tuple):
        return None if named is None else HOST_GPUS
    name, _, topology = named[0].partition(":")
    known = next((one for one in TPUS if one.name == name), None)
    return None if known is None else known.devices * math.prod(map(int, topology.split("x")))


@dataclass(frozen=True)
class Described:
    """Hardware as JAX's get_topology_desc takes it, and what compiling for it needs."""

    platform: str
    name: str
    how: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Compiler options."""
    environment: Mapping[str, str] = field(default_factory=dict)


def described(text: str, gpus: int = HOST_GPUS) -> Described | None:
    """Return the hardware with a name, for a process without bufdb; None for the CPU.

    Args:
        text: as of `target`.
        gpus: how many of a GPU, in hosts of eight.

    Raises:
        UsageError: it cannot be compiled for.
    """
    named = hardware_of(text)
    if named is None:
        return None
    if isinstance(named, tuple):
        return Described("tpu", named[0], named[1], environment={_NO_LOCK: "1"})
    how = {"target_config": _config(text, named), "topology": _hosts(gpus)}
    return Described("cuda", "described", how, _UNTIMED, {_NO_DRIVER: "1"})


def _tpu(text: str, topology: str, options: Mapping[str, str]) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise BufdbError(
            "compiling for a TPU needs its compiler, the package libtpu: pip install 'bufdb[tpu]'"
        )
    # Its lock is for users of devices; a description needs none, and another process may hold it.
    with _switched_on(_NO_LOCK):
        return _described(text, topology, platform="tpu", **options)


@contextmanager
def _switched_on(name: str) -> Iterator[None]:
    """Set an environment variable to 1 within the block."""
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _gpu(text: str, name: str, count: int) -> Sequence[Any]:
    config = _config(text, name)
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        raise BufdbError(
            "compiling for a GPU needs its compiler, the package jax-cuda12-plugin: "
            "pip install 'jax[cuda12]'"
        )
    with _switched_on(_NO_DRIVER):
        jax_module().devices()  # lets JAX find its plugins
    how = {"target_config": config, "topology": _hosts(count)}
    return _described(text, "described", platform="cuda", **how)


def _hosts(gpus: int) -> str:
    """Return the topology of hosts of eight GPUs, or of one host of another number."""
    hosts = max(1, gpus // HOST_GPUS) if gpus % HOST_GPUS == 0 else 1
    return f"1x{hosts}x{gpus // hosts}"


def _config(text: str, name: str) -> str:
    """Return the description of a GPU by its name, or of the file with that name."""
    known = gpu(name)
    if known is not None:
        return known.config()
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--target {quote(text)}: cannot read {name}: {error.strerror}; {known_names()}"
        ) from error


def _described(text: str, name: str, /, **how: Any) -> Sequence[Any]:
    """Return the devices of a description.

    Raises:
        UsageError: the compiler does not know it.
    """
    jax_module()
    topologies = importlib.import_module("jax.experimental.topologies")
    try:
        devices: Sequence[Any] = topologies.get_topology_desc(name, **how).devices
    except Exception as error:  # JAX's own class of errors moved between its versions
        reason = str(error).strip().split("\n")[0][:200]
        raise UsageError(f"--target {quote(text)}: {reason}; {known_names()}") from error
    return devices
