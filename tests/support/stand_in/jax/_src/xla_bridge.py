"""Devices of the process."""

import jax

devices = local_devices = jax.devices


def device_count():
    return len(devices())


local_device_count = device_count
