"""The modules that a page lists, one row for each memory space, with the figures of each.

Invariant: a figure is a cell of `asked_modules`, which is what `bufdb query modules --color all`
shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb

from bufdb.query import execute
from bufdb.query.asked import about
from bufdb.query.asked.spaces import ALL
from bufdb.query.header import Value

DEVICE_LABEL = "device"
"""Label or metadata of a run that says on which device its programs run."""

SQL = f"""
SELECT
  asked.module_id,
  asked.run_name,
  coalesce(asked.function_name, asked.module_key) AS function_name,
  asked.module_key,
  asked.platform,
  asked.color,
  coalesce(asked.memory_space_name, 'color ' || asked.color) AS memory_space,
  asked.peak_bytes,
  asked.peak_time,
  coalesce(modules.schedule_length, 0) AS schedule_length,
  asked.occupied_temp_bytes,
  asked.fixed_bytes,
  asked.argument_bytes,
  asked.output_bytes,
  asked.alias_bytes,
  asked.constant_bytes,
  asked.temp_bytes,
  asked.total_bytes,
  asked.fragmentation_bytes,
  asked.need_bytes,
  asked.peak_unknown_reason,
  largest.module_id IS NOT NULL AS is_largest,
  coalesce(asked.is_device_memory, FALSE) AS is_device_memory,
  (
    SELECT min(run_labels.label_value)
    FROM run_labels
    WHERE run_labels.run_name = asked.run_name
      AND run_labels.label = '{DEVICE_LABEL}'
  ) AS device_name,
  (
    SELECT count(*)
    FROM "values"
    WHERE "values".module_id = asked.module_id
  ) AS value_count
FROM asked_modules AS asked
JOIN modules ON modules.module_id = asked.module_id
LEFT JOIN asked_functions AS largest
  ON largest.module_id = asked.module_id
  AND largest.color IS NOT DISTINCT FROM asked.color
ORDER BY
  asked.peak_bytes IS NULL, NOT coalesce(asked.is_device_memory, FALSE),
  asked.need_bytes DESC NULLS LAST, asked.peak_bytes DESC NULLS LAST, asked.run_name,
  function_name, asked.module_key, asked.color
"""

Asked = Mapping[str, Value]
"""Globs run, function, module, and a platform: what saved queries take under these names."""


class Module(NamedTuple):
    """A module in one memory space; bytes are None where `memory_figures` has NULL."""

    module_id: int
    run_name: str
    function_name: str
    """The module's key if that is unknown."""
    module_key: str
    platform: str | None
    color: int | None
    """None for a module without allocations."""
    memory_space: str | None
    peak_bytes: int | None
    peak_time: int | None
    """[program order]."""
    schedule_length: int
    """The last instant [program order]; 0 without live ranges."""
    occupied_temp_bytes: int | None
    fixed_bytes: int | None
    argument_bytes: int | None
    output_bytes: int | None
    alias_bytes: int | None
    constant_bytes: int | None
    temp_bytes: int | None
    total_bytes: int | None
    fragmentation_bytes: int | None
    need_bytes: int | None
    unknown_reason: str | None
    """Why the peak is unknown."""
    is_largest: bool
    """Whether saved queries answer for this compilation of the function (asked_functions)."""
    is_device_memory: bool
    """Whether it is the memory of the device, which a limit is of."""
    device_name: str | None
    """What the run is labelled with."""
    value_count: int
    """Values in all memory spaces."""

    @property
    def place(self) -> tuple[int, int | None]:
        """What tells it from all others."""
        return self.module_id, self.color

    @property
    def function(self) -> tuple[str, str, str | None, int | None]:
        """How answers of saved queries name what they are about."""
        return self.run_name, self.function_name, self.platform, self.color


def modules(con: duckdb.DuckDBPyConnection, asked: Asked) -> list[Module]:
    """The modules that are asked for, in every memory space.

    Those in the memory of the device come first, of these the largest need; unknown peaks last.
    """
    values: dict[str, Value] = {"color": ALL, **asked}
    return [Module(*row) for row in execute.execute_with(con, SQL, values, "report").rows]


def counts(con: duckdb.DuckDBPyConnection, asked: Asked) -> dict[str, int | str | None]:
    """run_count, module_count, function_count and platforms of what is asked for."""
    result = execute.execute_with(con, about.COUNTS, asked, "report")
    return dict(zip((name for name, _ in result.columns), result.rows[0], strict=True))


def findings(con: duckdb.DuckDBPyConnection, asked: Asked) -> list[tuple[str, str, int]]:
    """Severity, code and number of what was found about the dumps, worst first."""
    return execute.execute_with(con, about.FINDINGS, asked, "report").rows
