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


THROUGH_HLO = (
    *("backward_bytes", "saving_form", "low_saving_bytes", "low_unknown_reason", "kept_bytes"),
    *("kept_name", "low_operation_count", "operation_count"),
)
"""Columns of peak_savings that neither reader has without a walk through the HLO text."""


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as texts; of peak_savings what is known without a walk through the HLO text."""
    rows = [
        {name: cell for name, cell in row.items() if name not in THROUGH_HLO}
        for row in rows
        if row.get("what") in (None, "value")
    ]
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)
