"""The tables that both readers give, and their rows in a form that can be compared."""

from __future__ import annotations

import json
from typing import Any

TABLES = (
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "peak_contributors",
    "peak_stack_nodes",
    "stack_frames",
    "input_output_aliases",
    "compiler_options",
    "entry_parameters",
    "reported_sums",
    "memory_sums",
    "occupied_peaks",
    "occupancy_steps",
    "peak_values",
    "value_users",
    "peaks",
    "peak_savings",
)


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as texts; of peak_savings those of values, since lines go through the HLO text."""
    rows = [row for row in rows if row.get("what") in (None, "value")]
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)
