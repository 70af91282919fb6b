-- title: Temp values that hold much memory for a long time
-- group: peak
-- engines: duckdb, spark, sail
--
-- Ranks temp values by size times lifetime: the share of the arena that each takes. A large value
-- that lives for two steps costs less than a medium one that lives through the whole backward pass.
-- A buffer that goes through a loop is several values (initial value, loop state, result), each
-- with its own part of the lifetime. Shows the module with the largest known peak for each run and
-- function.
--
-- param run, function, platform, color, module, peak, step, top_functions
-- param top_n BIGINT = 10: Values to show for each.
--
-- column run_name, function_name, platform, color
-- column byte_steps DOUBLE: size_bytes times the number of instants at which the value is live
--   [bytes x program order].
-- column lifetime_ratio DOUBLE: These instants as a share of all instants of the module (0 to 1).
-- column size_bytes BIGINT: Assigned size of the value [bytes].
-- column start_time BIGINT: First instant at which it is live [program order].
-- column end_time BIGINT: Last such instant [program order].
-- column is_at_peak BOOLEAN: Whether it is live at the peak.
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode, instruction_name, shape_index, op_name, source, unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
functions AS (
  SELECT
    place, peak_time, module_id, color, run_name, function_name, platform, unknown_reason,
    name_place
  FROM answered_instants
),
lived_values AS (
  SELECT
    functions.place AS function_place,
    CAST(value_details.size_bytes AS DOUBLE)
      * (CAST(value_details.end_time AS DOUBLE) - value_details.start_time + 1) AS byte_steps,
    CAST(CAST(value_details.end_time AS DOUBLE) - value_details.start_time + 1 AS DOUBLE)
      / nullif(CAST(modules.schedule_length AS DOUBLE) + 1, 0) AS lifetime_ratio,
    value_details.value_id, value_details.size_bytes, value_details.start_time,
    value_details.end_time,
    functions.peak_time BETWEEN value_details.start_time AND value_details.end_time
      AS is_at_peak,
    value_details.shape, value_details.opcode, value_details.instruction_name,
    value_details.shape_index, value_details.op_name,
    coalesce(value_details.own_source, value_details.library_source) AS source
  FROM functions
  CROSS JOIN params
  JOIN modules ON modules.module_id = functions.module_id
  JOIN value_details
    ON value_details.module_id = functions.module_id
    AND value_details.color = functions.color
  WHERE functions.place <= params.top_functions
    AND value_details.allocation_kind = 'temp'
    AND value_details.size_bytes > 0
    AND value_details.start_time IS NOT NULL
),
ranked_values AS (
  SELECT
    function_place, byte_steps, lifetime_ratio, size_bytes, start_time, end_time, is_at_peak, shape,
    opcode, instruction_name, shape_index, op_name, source,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY byte_steps DESC, size_bytes DESC, value_id
    ) AS place
  FROM lived_values
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  ranked_values.byte_steps, ranked_values.lifetime_ratio, ranked_values.size_bytes,
  ranked_values.start_time, ranked_values.end_time, ranked_values.is_at_peak, ranked_values.shape,
  ranked_values.opcode, ranked_values.instruction_name, ranked_values.shape_index,
  ranked_values.op_name, ranked_values.source, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked_values
  ON ranked_values.function_place = functions.place
  AND ranked_values.place <= params.top_n
WHERE ranked_values.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY functions.place, functions.name_place, ranked_values.place;
