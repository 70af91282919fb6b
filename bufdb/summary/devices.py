"""Memory of devices by name, for whoever says on which one a program runs: no dump does.

A device is what JAX calls one: of TPU v2 and v3 a core, of TPU7x a chiplet, half of a chip's
memory each; of an MI250X a die. Sizes are nominal: the runtime keeps a part for itself, and JAX on
a GPU takes three quarters at first.
"""

from __future__ import annotations

from dataclasses import dataclass

from bufdb.errors import UsageError, quote
from bufdb.query.sizes import parse_size

Limits = tuple[int | None, str | None]
"""Bytes of a device's memory, and the device's name; None where that is not known."""
GIB = 2**30

_TPU_OLD = "https://cloud.google.com/tpu/docs/system-architecture-tpu-vm"
_TPU7X = "https://docs.cloud.google.com/tpu/docs/tpu7x"  # its table has v5p and v6e too
_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_AMD = "https://www.amd.com/en/products/accelerators/instinct"


@dataclass(frozen=True)
class Device:
    """A kind of device."""

    name: str
    memory_bytes: int
    """Of one device, nominal [bytes]."""
    source: str
    """Page of its maker that says so."""
    other_names: tuple[str, ...] = ()
    """As `jax.Device.device_kind` and the makers call it too."""


DEVICES = (
    Device("TPU v2", 8 * GIB, f"{_TPU_OLD}: 16 GiB a chip, two cores"),
    Device("TPU v3", 16 * GIB, f"{_TPU_OLD}: 32 GiB a chip, two cores"),
    Device("TPU v4", 32 * GIB, "https://cloud.google.com/tpu/docs/v4"),
    Device("TPU v5e", 16 * GIB, "https://cloud.google.com/tpu/docs/v5e", ("TPU v5 lite",)),
    Device("TPU v5p", 95 * GIB, _TPU7X, ("TPU v5",)),
    Device("TPU v6e", 32 * GIB, _TPU7X, ("TPU v6 lite", "Trillium")),
    Device("TPU7x", 96 * GIB, f"{_TPU7X}: 192 GiB a chip, two devices", ("TPU v7", "Ironwood")),
    Device("T4", 16 * GIB, f"{_NVIDIA}/tesla-t4", ("Tesla T4",)),
    Device("L4", 24 * GIB, f"{_NVIDIA}/l4", ("NVIDIA L4",)),
    Device("L40S", 48 * GIB, f"{_NVIDIA}/l40s", ("NVIDIA L40S",)),
    Device("A10", 24 * GIB, f"{_NVIDIA}/products/a10-gpu", ("NVIDIA A10",)),
    Device("V100 16GB", 16 * GIB, f"{_NVIDIA}/v100", ("Tesla V100-SXM2-16GB",)),
    Device("V100 32GB", 32 * GIB, f"{_NVIDIA}/v100", ("Tesla V100-SXM2-32GB",)),
    Device("A100 40GB", 40 * GIB, f"{_NVIDIA}/a100", ("NVIDIA A100-SXM4-40GB",)),
    Device("A100 80GB", 80 * GIB, f"{_NVIDIA}/a100", ("NVIDIA A100-SXM4-80GB",)),
    Device("H100 80GB", 80 * GIB, f"{_NVIDIA}/h100", ("NVIDIA H100 80GB HBM3", "H100")),
    Device("H200", 141 * GIB, f"{_NVIDIA}/h200", ("NVIDIA H200",)),
    Device("MI250X", 64 * GIB, f"{_AMD}/mi200/mi250x.html: 128 GB, two dies"),
    Device("MI300X", 192 * GIB, f"{_AMD}/mi300/mi300x.html", ("AMD Instinct MI300X",)),
    Device("MI325X", 256 * GIB, f"{_AMD}/mi300/mi325x.html", ("AMD Instinct MI325X",)),
)


def device(name: str) -> Device | None:
    """The device of a name, capitals or not; None if there is none."""
    folded = name.strip().casefold()
    for known in DEVICES:
        if folded in (text.casefold() for text in (known.name, *known.other_names)):
            return known
    return None


def limit_of(given: int | str | None) -> Limits:
    """Bytes of a limit, and the name of the device if it is one's memory.

    Args:
        given: bytes, a size such as "16GiB", or a device such as "TPU v5e"; None for no limit.

    Raises:
        UsageError: it is neither a size above 0 nor a device.
    """
    if given is None:
        return None, None
    text = str(given)
    known = device(text)
    if known is not None:
        return known.memory_bytes, known.name
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size <= 0:
        names = ", ".join(item.name for item in DEVICES)
        raise UsageError(f"--limit wants a size such as 16GiB or one of {names}; got {quote(text)}")
    return size, None
