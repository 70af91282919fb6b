-- title: Sizes and peak of every module by memory space
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per module and memory space (color) that it has an allocation in, largest peak first,
-- unknown ones before all others: what lies where. On a TPU space 0 is the large memory (HBM) and
-- space 1 the fast one (VMEM), on a GPU space 5 is the host. Names come from the table
-- memory_spaces, which is yours to edit.
--
-- param run, function, platform
-- param color VARCHAR = NULL: Memory space: its number; NULL or all is every one.
-- param module, top_n = 50
--
-- column run_name
-- column function_name VARCHAR: Jitted function; NULL if unknown.
-- column platform
-- column module_key VARCHAR: The module: its dump's path in the run.
-- column color BIGINT: Memory space; NULL for a module without allocations.
-- column memory_space_name VARCHAR: Its name; NULL if the platform or its name is unknown.
-- column peak_bytes HUGEINT: Most bytes occupied at one instant [bytes]; NULL if unknown.
-- column need_bytes HUGEINT: What a device must hold: all allocations but thread-local ones
--   [bytes]; NULL if unknown.
-- column module_peak_ratio DOUBLE: peak_bytes as share of the sum over all memory spaces of the
--   module, whose peaks need not coincide (0 to 1); NULL as peak_bytes.
-- column argument_bytes HUGEINT: Sum of parameter allocations, donated ones included [bytes].
-- column output_bytes HUGEINT: Sum of output allocations, donated parameters included [bytes].
-- column alias_bytes HUGEINT: Sum of donated parameters [bytes].
-- column temp_bytes HUGEINT: Sum of temp allocations [bytes].
-- column constant_bytes HUGEINT: Sum of constant allocations [bytes].
-- column thread_local_bytes HUGEINT: Sum of thread-local allocations [bytes].
-- column fragmentation_bytes HUGEINT: Temp space not occupied even at the peak [bytes]; NULL as
--   peak_bytes.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT
    getvariable('color')::VARCHAR AS color,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
module_peaks AS (
  SELECT
    memory_figures.module_id,
    CASE WHEN count(*) = count(peak_bytes) THEN sum(peak_bytes) END AS peak_bytes
  FROM memory_figures
  GROUP BY memory_figures.module_id
)
SELECT
  figures.run_name, figures.function_name, figures.platform, figures.module_key, figures.color,
  figures.memory_space_name, figures.peak_bytes, figures.need_bytes,
  CAST(figures.peak_bytes AS DOUBLE) / nullif(module_peaks.peak_bytes, 0) AS module_peak_ratio,
  figures.argument_bytes, figures.output_bytes, figures.alias_bytes, figures.temp_bytes,
  figures.constant_bytes, figures.thread_local_bytes, figures.fragmentation_bytes,
  figures.peak_unknown_reason AS unknown_reason
FROM asked_spaces AS figures
CROSS JOIN params
JOIN module_peaks ON module_peaks.module_id = figures.module_id
WHERE coalesce(params.color, 'all') = 'all'
  OR figures.color IS NULL
  OR params.color = CAST(figures.color AS VARCHAR)
ORDER BY
  figures.peak_bytes DESC NULLS FIRST, figures.total_bytes DESC, figures.run_name,
  figures.module_key, figures.color
LIMIT (SELECT top_n FROM params);
