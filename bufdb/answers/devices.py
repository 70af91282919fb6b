"""The memory of devices by name that a program may use: no dump names the device.

A device is what JAX calls one: a core of TPU v2 and v3, a chiplet of TPU7x, each with half of a
chip's memory; a die of an MI250X. On a TPU a program may use what the compiler allows; on a GPU the
limit is what JAX's allocator takes by default, three quarters of what the driver reports.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from bufdb.errors import UsageError, quote
from bufdb.query.sizes import parse_size, require_unit

Limits = tuple[int | None, str | None]
"""Bytes that a program may use, and the device's name; None where not known."""
MIB, GIB = 2**20, 2**30
GB = 10**9
JAX_SHARE = 0.75
"""Default share of a GPU's memory; XLA_PYTHON_CLIENT_MEM_FRACTION sets another."""

_TPU7X = "https://docs.cloud.google.com/tpu/docs/tpu7x"  # its table has v5p and v6e too
_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_RTX = "https://www.nvidia.com/en-us/geforce/graphics-cards"
_AMD = "https://www.amd.com/en/products/accelerators/instinct"
_XLA = "https://github.com/openxla/xla/blob/main/xla/backends/gpu/target_config/specs"

COMPILER = "a message of the compiler"
MEASURED = "measured: the compiler refuses 15.80 GiB"
DRIVER = "three quarters of what the driver reports"
LABEL = "three quarters of its label, in GB of 10^9"


class Device(NamedTuple):
    """A kind of device."""

    name: str
    whole_bytes: int
    """Of one device: nominal for a TPU, as `basis` says for a GPU [bytes]."""
    usable_bytes: int | None
    """Memory that the compiler lets a program use [bytes]; None for a GPU."""
    basis: str
    """Where the usable size comes from."""
    source: str
    """Page that gives it."""
    other_names: tuple[str, ...] = ()
    """Other names in `jax.Device.device_kind` or by vendors, without what `_folded` drops."""
    larger: str | None = None
    """The device of the same name with more memory, if there is one."""
    filled: tuple[int, str, int] | None = None
    """Number, name and size [bytes] of the memory space that XLA fills by itself on a TPU.
    Measured: it takes no more than this from a program that leaves 100 MiB or more in HBM."""

    @property
    def memory_bytes(self) -> int:
        """Memory that a program may use [bytes]: the limit."""
        if self.usable_bytes is not None:
            return self.usable_bytes
        return int(self.whole_bytes * JAX_SHARE)

    @property
    def title(self) -> str:
        """Its name and the whole memory: 'H100 80GB, of 79.11 GiB'."""
        # A program may use more of a v5p than its nominal size.
        is_part = self.memory_bytes < self.whole_bytes
        return f"{self.name}, of {self.whole_bytes / GIB:.4g} GiB" if is_part else self.name

    @property
    def explained(self) -> str:
        """Why the limit is not higher: 'JAX takes it by default, …'."""
        if self.usable_bytes is not None:
            return f"a program may use it ({self.basis})"
        return "JAX takes it by default (XLA_PYTHON_CLIENT_MEM_FRACTION sets another share)"


def _tpu(
    name: str,
    whole: int,
    usable: float,
    source: str,
    *others: str,
    vmem: int = 0,
    cmem: int = 0,
) -> Device:
    basis = MEASURED if name == "TPU v5e" else COMPILER
    filled = (1, "vmem", vmem * MIB) if vmem else (3, "cmem", cmem * MIB) if cmem else None
    return Device(
        name, whole * GIB, int(usable * GIB), basis, source, others, filled=filled
    )  # fmt: skip


def _gpu(name: str, whole: int, spec: str, *others: str, larger: str | None = None) -> Device:
    """Return a GPU whose memory XLA's specs give, as its driver reports it."""
    return Device(name, whole, None, DRIVER, f"{_XLA}/{spec}.txtpb", others, larger)


def _label(name: str, size: int, source: str, *others: str, larger: str | None = None) -> Device:
    """Return a GPU whose nominal size alone is known, in GB."""
    return Device(name, size * GB, None, LABEL, source, others, larger)


DEVICES = (
    _tpu("TPU v2", 8, 7.48, "https://github.com/sokrypton/ColabFold/issues/62"),
    _tpu("TPU v3", 16, 15.48, "https://github.com/erfanzar/EasyDeL/issues/142"),
    _tpu("TPU v4", 32, 30.75, "https://github.com/erfanzar/EasyDeL/issues/166", cmem=128),
    _tpu(
        "TPU v5e", 16, 15.75, "https://cloud.google.com/tpu/docs/v5e",
        "v5 lite", "v5litepod", vmem=112,
    ),
    _tpu("TPU v5p", 95, 95.74, _TPU7X, "TPU v5", vmem=48),
    _tpu(
        "TPU v6e", 32, 31.25, "https://github.com/EnzymeAD/Enzyme-JAX/pull/2422",
        "v6 lite", "v6litepod", "Trillium", vmem=96,
    ),
    _tpu("TPU7x", 96, 94.74, _TPU7X, "TPU v7x", "TPU v7", "TPU7", "Ironwood", vmem=32),
    _label("T4", 16, f"{_NVIDIA}/tesla-t4"),
    _label("L4", 24, f"{_NVIDIA}/l4"),
    _label("L40", 48, f"{_NVIDIA}/l40"),
    _label("L40S", 48, f"{_NVIDIA}/l40s"),
    _label("A10", 24, f"{_NVIDIA}/products/a10-gpu"),
    _label("A10G", 24, "https://aws.amazon.com/ec2/instance-types/g5/"),
    _label("A40", 48, f"{_NVIDIA}/a40"),
    _gpu("P100", 17066885120, "p100", "P100 16GB"),
    _gpu("V100 16GB", 16935682048, "v100", "V100", larger="V100 32GB"),
    _label("V100 32GB", 32, f"{_NVIDIA}/v100"),
    _gpu("A100 40GB", 42331013120, "a100_sxm_40", "A100", larger="A100 80GB"),
    _gpu("A100 80GB", 85100068864, "a100_sxm_80"),
    _gpu("A100 80GB PCIe", 79050250240, "a100_pcie_80", "A100 PCIe 80GB"),
    _gpu("H100 80GB", 84942979072, "h100_sxm", "H100", "H100 PCIe"),
    _label("H100 NVL", 94, f"{_NVIDIA}/h100"),
    _gpu("H200", 151397597184, "h200", "H200 141GB"),
    _label(
        "GH200 96GB", 96, f"{_NVIDIA}/grace-hopper-superchip", "GH200", "GH200 480GB",
        larger="GH200 144GB",
    ),
    _label("GH200 144GB", 144, f"{_NVIDIA}/grace-hopper-superchip"),
    _gpu("B200", 191514411008, "b200", "B200 180GB"),
    _gpu("GB200", 197897748480, "gb200"),
    _gpu("B300", 297021865984, "b300"),
    _gpu("GB300", 297021079552, "gb300"),
    _label("RTX 3090", 24, f"{_RTX}/30-series/rtx-3090-3090ti"),
    _label("RTX 4090", 24, f"{_RTX}/40-series/rtx-4090"),
    _label("RTX 5090", 32, f"{_RTX}/50-series/rtx-5090"),
    _gpu("RTX A6000", 51041271808, "a6000", "A6000"),
    _gpu("RTX PRO 6000", 103079215104, "rtx6000pro", "RTX PRO 6000 Blackwell"),
    _gpu("MI250X", 67628957696, "mi200", "MI250"),
    _label("MI300X", 192, f"{_AMD}/mi300/mi300x.html"),
    _label("MI325X", 256, f"{_AMD}/mi300/mi325x.html"),
    _label("MI355X", 288, f"{_AMD}/mi350/mi355x.html"),
)  # fmt: skip

_WORDS = r"[^a-z0-9.]+"
_DROPPED = r"nvidia|tesla|geforce|amd|instinct|google|cloud|gpu|tpu|cuda|rocm|sxm\d?|hbm\d?e?"
"""Words that are not part of a name."""
_SLICE = r"\d+(x\d+)*"
"""The cores or chips of a slice, or its topology, at the end of a TPU's name."""


def _folded(name: str) -> str:
    """Return a normalized device name: 'NVIDIA A100-SXM4-40GB' is 'a10040gb'."""
    words = [word for word in re.split(_WORDS, name.casefold()) if word]
    kept = [word for word in words if not re.fullmatch(_DROPPED, word)]
    if (
        kept
        and re.match(r"(tpu)?v?\d", kept[0])
        and len(kept) > 1
        and re.fullmatch(_SLICE, kept[-1])
    ):
        kept.pop()
    return re.sub(r"^tpu(?=v)", "", "".join(kept))


@functools.cache
def _by_name() -> dict[str, Device]:
    """Return the devices by all of their names, folded: 2 ms, for what few questions are asked."""
    return {_folded(name): known for known in DEVICES for name in (known.name, *known.other_names)}


def device(name: str) -> Device | None:
    """Return the device of a name as people, JAX or vendors write it; None if there is none."""
    folded = _folded(name)
    if folded == "v5" and "tpu" not in name.casefold():
        return None  # JAX calls a v5p "TPU v5"; a person may mean a v5e
    return _by_name().get(folded)


def with_share(known: Device, fraction: str) -> Device:
    """Return a GPU with another share of its memory for JAX, as its variables have it.

    One above 1 is of memory that the device shares with the host; a TPU has no share.
    """
    try:
        share = float(fraction)
    except ValueError:
        return known
    if known.usable_bytes is not None or not 0 < share <= 1:
        return known
    usable = int(known.whole_bytes * share)
    return known._replace(usable_bytes=usable, basis=f"memory_fraction={fraction} of the run")


def limit_of(limit: int | str | None) -> Limits:
    """Return the bytes of a limit, and the name of the device if the limit is its memory.

    Args:
        limit: bytes, a size such as "16GiB", or a device such as "TPU v5e"; None for no limit.

    Raises:
        UsageError: it is neither a size above 0 nor a device, or a small number without a unit.
    """
    if limit is None:
        return None, None
    text = str(limit).strip()
    known = device(text)
    if known is not None:
        return known.memory_bytes, known.name
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    require_unit(text, f"--limit {text}")
    if size <= 0:
        raise UsageError(
            f"--limit wants a size such as 16GiB or a device such as {_nearest(text)}; "
            f"got {quote(text)}"
        )
    return size, None


def _nearest(text: str) -> str:
    """Return up to four device names similar to a text, or else a few common ones."""
    import difflib  # only needed for errors

    wanted = _folded(text) if text[:1].isalpha() else ""
    near = difflib.get_close_matches(wanted, _by_name(), n=8, cutoff=0.5)
    names = list(dict.fromkeys(_by_name()[name].name for name in near))[:4]
    return ", ".join(names or ["TPU v5e", "TPU v6e", "A100 80GB", "H100 80GB"])


def table() -> str:
    """Return all devices as a Markdown table, for the documentation."""
    lines = [
        "| device | limit | whole | how the limit is known | XLA fills |",
        "|---|--:|--:|---|--:|",
    ]
    for known in DEVICES:
        names = ", ".join([known.name, *known.other_names])
        filled = f"{known.filled[2] // MIB} MiB {known.filled[1]}" if known.filled else ""
        lines.append(
            f"| {names} | {known.memory_bytes / GIB:.2f} GiB | {known.whole_bytes / GIB:.4g} GiB "
            f"| {known.basis} ([page]({known.source})) | {filled} |"
        )
    return "\n".join(lines)
