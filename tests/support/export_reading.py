"""Read exported files as a viewer does."""

from __future__ import annotations

from typing import Any


def played(snapshot: dict[str, Any], device: int) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes allocated after each instant, as the viewer counts them; addresses still held."""
    held: dict[int, int] = {}
    sums: dict[int, int] = {}
    total = 0
    for event in snapshot["device_traces"][device]:
        assert set(event) == {"action", "addr", "size", "stream", "time_us", "frames"}
        if event["action"] == "alloc":
            assert event["addr"] not in held
            held[event["addr"]] = event["size"]
            total += event["size"]
        elif event["action"] == "free_completed":
            assert held.pop(event["addr"]) == event["size"]
            total -= event["size"]
        else:
            assert event["action"] == "free_requested"
        sums[event["time_us"]] = total
    return sums, held
