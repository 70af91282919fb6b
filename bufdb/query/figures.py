"""Figures of the modules of a run, and the values that hold their memory at the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


# -- Figures of a module in a memory space ---------------------------------------------------------

METRICS = {
    "need": "need_bytes",
    "peak": "peak_bytes",
    "temp": "temp_bytes",
    "arguments": "argument_bytes",
    "outputs": "output_bytes",
    "constants": "constant_bytes",
    "total": "total_bytes",
    "fragmentation": "fragmentation_bytes",
}
"""Column of memory_figures for each metric."""

Place = tuple[int, int | None]
"""A module and memory space: module_id and color."""


@dataclass(frozen=True)
class MemoryFigures:
    """Figures of one module in one memory space."""

    module_id: int
    module_key: str
    function: str
    platform: str | None
    color: int | None
    """None for a module without allocations."""
    memory_space: str | None
    values: Mapping[str, int | None]
    """By metric; None if unknown."""
    is_device_memory: bool = True
    """Whether it is the memory of the device, which is judged unless another space is named."""
    unknown_reason: str | None = None
    """Why the peak, and what depends on it, is unknown."""
    problem_count: int = 0
    """Number of diagnostics that show that the dump was not read in full."""

    @property
    def place(self) -> Place:
        """The module and memory space of the figures."""
        return self.module_id, self.color


# -- Figures of the modules of a run, and the values that hold their memory at the peak ------------

_KINDS = {
    "arguments": ("parameter", "donated_parameter"),
    "outputs": ("output", "donated_parameter"),
    "constants": ("constant",),
    "temp": ("temp",),
    "fragmentation": ("temp",),
}
"""Kinds of allocation that a metric counts; other metrics count all."""


@dataclass(frozen=True)
class Contributor:
    """A value that holds bytes at the peak."""

    held_bytes: int
    kind: str
    """allocations.kind."""
    shape: str | None
    """Shape without layout; like all fields below, None if the dump does not have it."""
    instruction_name: str | None
    op_path: str | None
    source: str | None
    """`file:line`."""


def of_run(con: duckdb.DuckDBPyConnection, run: str) -> list[MemoryFigures]:
    """Return one item per module and memory space, and one per module without allocations."""
    columns = ", ".join(f"memory_figures.{column}" for column in METRICS.values())
    rows = con.execute(
        f"""
        SELECT
          modules.module_id,
          modules.module_key,
          coalesce(modules.function_name, modules.module_name, modules.module_key),
          modules.platform,
          memory_figures.color,
          memory_figures.memory_space_name,
          (
            SELECT count(*)
            FROM diagnostics
            WHERE diagnostics.module_id = modules.module_id
              AND diagnostics.severity IN ('data_loss', 'error')
          ),
          coalesce(memory_figures.is_device_memory, FALSE),
          memory_figures.peak_unknown_reason,
          {columns}
        FROM modules
        LEFT JOIN memory_figures ON memory_figures.module_id = modules.module_id
        WHERE modules.run_name = ?
        ORDER BY modules.module_key, memory_figures.color
        """,
        [run],
    ).fetchall()
    return [
        MemoryFigures(
            module_id,
            key,
            function,
            platform,
            color,
            space,
            dict(zip(METRICS, values, strict=True)),
            is_device,
            reason,
            problems,
        )
        for (
            module_id,
            key,
            function,
            platform,
            color,
            space,
            problems,
            is_device,
            reason,
            *values,
        ) in rows
    ]


def of_base(con: duckdb.DuckDBPyConnection, base: str, run: str) -> dict[Place, MemoryFigures]:
    """Return the figures in `base` to compare those of `run` with, by place in `run`.

    Modules are paired as in `bufdb diff`, but only within a platform. What `base` does not have is
    left out: a module without a partner, a memory space that its partner lacks.
    """
    pairs = con.execute(
        """
        SELECT pairs.base_module_id, pairs.new_module_id
        FROM diff_pairs(?, ?) AS pairs
        JOIN modules AS base_modules ON base_modules.module_id = pairs.base_module_id
        JOIN modules AS new_modules ON new_modules.module_id = pairs.new_module_id
        WHERE base_modules.platform IS NOT DISTINCT FROM new_modules.platform
        """,
        [base, run],
    ).fetchall()
    partner = dict(pairs)
    return {
        (partner[figure.module_id], figure.color): figure
        for figure in of_run(con, base)
        if figure.module_id in partner
    }


def unread(con: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """Return findings about files of a run that could not be assigned to a module."""
    rows = con.execute(
        "SELECT concat_ws(': ', path, message) FROM diagnostics WHERE run_name = ? "
        "AND module_id IS NULL AND severity IN ('data_loss', 'error') ORDER BY ALL",
        [run],
    ).fetchall()
    return [text for (text,) in rows]


def contributors(
    con: duckdb.DuckDBPyConnection, figure: MemoryFigures, metric: str, count: int
) -> tuple[list[Contributor], int]:
    """Return the largest values at the peak that a metric counts, and their total number."""
    rows = con.execute(
        """
        SELECT
          held_bytes,
          allocation_kind,
          bare_shape,
          held.instruction_name,
          coalesce(
            origins.relation || origins.stripped_op_path, held.stripped_op_path, held.op_name
          ),
          coalesce(
            origins.relation || origins.own_source,
            held.own_source,
            origins.relation || origins.library_source,
            held.library_source,
            held.source_file || ':' || held.source_line,
            held.source_file
          ),
          count(*) OVER ()
        FROM peak_value_details AS held
        LEFT JOIN value_origin_details AS origins USING (module_id, value_id)
        WHERE module_id = ?
          AND color = ?
          AND (len(?) = 0 OR list_contains(?, allocation_kind))
        ORDER BY held_bytes DESC, allocation_index, value_id
        LIMIT ?
        """,
        [
            figure.module_id,
            figure.color,
            list(_KINDS.get(metric, ())),
            list(_KINDS.get(metric, ())),
            count,
        ],
    ).fetchall()
    return [Contributor(*row[:-1]) for row in rows], rows[0][-1] if rows else 0
