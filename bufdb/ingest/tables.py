"""Tables of modules, and types of their columns, read from the SQL that makes them: no database.

What reads modules in another process, or writes rows elsewhere, holds its columns to these.
"""

from __future__ import annotations

import functools
import re

from bufdb import resources
from bufdb.columnar.rows import TYPES

_COLUMN = re.compile(r'^  "?(\w+)"? ([A-Z]+(?:\[\])?)', re.MULTILINE)

LARGE = (
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "peak_contributors",
    "peak_stack_nodes",
)
"""Tables whose rows keep blocks of text alive; few rows of others may wait for the end of a
transaction."""
MODULE_TABLES = (
    "modules",
    "files",
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "memory_sums",
    "occupied_peaks",
    "occupancy_steps",
    "peaks",
    "peak_values",
    "value_users",
    "value_origins",
    "recompute_costs",
    "recompute_parts",
    "peak_savings",
    "peak_contributors",
    "peak_stack_nodes",
    "stack_frames",
    "input_output_aliases",
    "compiler_options",
    "entry_parameters",
    "reported_sums",
    "diagnostics",
    "row_counts",
)
"""Every table that holds rows of a module, by module_id."""
Types = dict[str, dict[str, str]]
"""DuckDB type of each column in order, by table."""


@functools.cache
def types() -> Types:
    """Of every table that rows of modules can be put into."""
    files = resources.schema_files("tables")
    found = {file.stem: _columns(file.read_text("utf-8")) for file in files}
    return {name: columns for name, columns in found.items() if set(columns.values()) <= set(TYPES)}


def _columns(sql: str) -> dict[str, str]:
    inner = sql.partition("CREATE TABLE ")[2].partition("\n);")[0]
    return dict(_COLUMN.findall(inner))
