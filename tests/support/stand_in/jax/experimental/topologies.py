"""Devices of TPUs by name."""

import types

KINDS = {"v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite"}


def get_topology_desc(name, platform, **how):
    generation, _, topology = name.partition(":")
    if generation not in KINDS:
        raise RuntimeError(f"INVALID_ARGUMENT: Invalid TPU external name: TPU {generation}\nmore")
    device = types.SimpleNamespace(device_kind=KINDS[generation], platform=platform)
    return types.SimpleNamespace(devices=[device] * (4 if topology else 1))
