-- title: Every module with its arguments, outputs, temps, constants and peak
-- group: overview
-- engines: duckdb, spark
--
-- One row per module and memory space, largest peak first, unknown ones before all others. The peak
-- is the largest number of bytes occupied at one instant: all allocations but temp and thread-local
-- ones, which are held for the whole run, plus the bytes of temp allocations that live values
-- occupy, shared bytes counted once. It is NULL where the dump does not tell it; unknown_reason
-- says why.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 100: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; NULL if unknown.
-- column module_key VARCHAR: The dump's path in its run.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space; NULL for a module without allocations.
-- column peak_bytes HUGEINT: The peak [bytes]; NULL if unknown.
-- column argument_bytes HUGEINT: Parameters, donated ones included [bytes].
-- column output_bytes HUGEINT: Outputs, donated parameters included [bytes].
-- column alias_bytes HUGEINT: Donated parameters, counted in both [bytes].
-- column constant_bytes HUGEINT: Constants [bytes].
-- column temp_bytes HUGEINT: Temp allocations as a whole [bytes].
-- column total_bytes HUGEINT: All allocations [bytes].
-- column biggest_value_bytes BIGINT: Largest value [bytes]; NULL if no value is listed.
-- column biggest_value VARCHAR: Its defining instruction, of equal ones the lowest value_id; NULL
--   if no value is listed.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
ranked_values AS (
  SELECT
    allocations.module_id,
    allocations.color,
    "values".size_bytes,
    "values".instruction_name,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.color
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM "values"
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
),
matches AS (
  SELECT
    modules.run_name,
    modules.function_name,
    modules.module_key,
    modules.module_id,
    modules.platform,
    memory_figures.color,
    memory_figures.peak_bytes,
    memory_figures.argument_bytes,
    memory_figures.output_bytes,
    memory_figures.alias_bytes,
    memory_figures.constant_bytes,
    memory_figures.temp_bytes,
    memory_figures.total_bytes,
    memory_figures.peak_unknown_reason AS unknown_reason,
    ranked_values.size_bytes AS biggest_value_bytes,
    ranked_values.instruction_name AS biggest_value,
    row_number() OVER (
      ORDER BY
        memory_figures.peak_bytes DESC NULLS FIRST,
        memory_figures.total_bytes DESC NULLS LAST,
        modules.run_name,
        modules.module_key,
        memory_figures.color
    ) AS place
  FROM modules
  CROSS JOIN params
  JOIN memory_figures ON memory_figures.module_id = modules.module_id
  LEFT JOIN ranked_values
    ON ranked_values.module_id = memory_figures.module_id
    AND ranked_values.color = memory_figures.color
    AND ranked_values.place = 1
  WHERE (
    params.run IS NULL
    OR modules.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR memory_figures.color IS NULL
      OR memory_figures.color = params.color
    )
)
SELECT
  matches.run_name,
  matches.function_name,
  matches.module_key,
  matches.platform,
  matches.color,
  matches.peak_bytes,
  matches.argument_bytes,
  matches.output_bytes,
  matches.alias_bytes,
  matches.constant_bytes,
  matches.temp_bytes,
  matches.total_bytes,
  matches.biggest_value_bytes,
  matches.biggest_value,
  matches.unknown_reason
FROM matches
CROSS JOIN params
WHERE matches.place <= params.top_n
ORDER BY matches.place;
