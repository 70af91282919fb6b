-- title: Temp values that hold much memory for long
-- group: live
-- engines: duckdb, spark
--
-- Ranks temp values by size times lifetime: what the arena spends on each of them. A large value
-- that lives for two steps costs less than a middling one that lives through the whole backward
-- pass. A buffer that goes through a loop is several values (initial value, loop state, result),
-- each with its own part of the lifetime. For each run and function the module with the largest
-- known peak is shown.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Values to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column byte_steps DOUBLE: size_bytes times the number of instants at which the value is live
--   [bytes x program order].
-- column lifetime_ratio DOUBLE: Those instants as share of all instants of the module (0 to 1).
-- column size_bytes BIGINT: Assigned size of the value [bytes].
-- column start_time BIGINT: First instant at which it is live [program order].
-- column end_time BIGINT: Last such instant.
-- column is_at_peak BOOLEAN: Whether it is live at the peak.
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode VARCHAR: Opcode of the defining instruction; NULL if unknown.
-- column instruction_name VARCHAR: Defining instruction.
-- column shape_index VARCHAR: Index of the value in that instruction's shape, {} for all of it.
-- column op_name VARCHAR: Scope path of the operation; NULL if the dump has none.
-- column source VARCHAR: Innermost file:line that is not library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
ranked_functions AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.module_id,
    function_modules.color,
    function_modules.peak_time,
    row_number() OVER (
      ORDER BY
        function_modules.peak_bytes DESC, function_modules.run_name, function_modules.function_name,
        function_modules.color, function_modules.platform NULLS LAST
    ) AS function_place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.peak_bytes <> 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (params.color IS NULL OR function_modules.color = params.color)
),
lived_values AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_functions.function_place,
    CAST(value_details.size_bytes AS DOUBLE)
      * (CAST(value_details.end_time AS DOUBLE) - value_details.start_time + 1) AS byte_steps,
    CAST(CAST(value_details.end_time AS DOUBLE) - value_details.start_time + 1 AS DOUBLE)
      / nullif(CAST(modules.schedule_length AS DOUBLE) + 1, 0) AS lifetime_ratio,
    value_details.value_id,
    value_details.size_bytes,
    value_details.start_time,
    value_details.end_time,
    ranked_functions.peak_time BETWEEN value_details.start_time AND value_details.end_time
      AS is_at_peak,
    value_details.shape,
    value_details.opcode,
    value_details.instruction_name,
    value_details.shape_index,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source
  FROM ranked_functions
  CROSS JOIN params
  JOIN modules ON modules.module_id = ranked_functions.module_id
  JOIN value_details
    ON value_details.module_id = ranked_functions.module_id
    AND value_details.color = ranked_functions.color
  WHERE ranked_functions.function_place <= params.top_functions
    AND value_details.allocation_kind = 'temp'
    AND value_details.size_bytes > 0
    AND value_details.start_time IS NOT NULL
),
ranked_values AS (
  SELECT
    lived_values.run_name,
    lived_values.function_name,
    lived_values.color,
    lived_values.function_place,
    lived_values.byte_steps,
    lived_values.lifetime_ratio,
    lived_values.size_bytes,
    lived_values.start_time,
    lived_values.end_time,
    lived_values.is_at_peak,
    lived_values.shape,
    lived_values.opcode,
    lived_values.instruction_name,
    lived_values.shape_index,
    lived_values.op_name,
    lived_values.source,
    row_number() OVER (
      PARTITION BY lived_values.function_place
      ORDER BY lived_values.byte_steps DESC, lived_values.size_bytes DESC, lived_values.value_id
    ) AS value_place
  FROM lived_values
),
answers AS (
  SELECT
    ranked_values.run_name,
    ranked_values.function_name,
    ranked_values.color,
    ranked_values.byte_steps,
    ranked_values.lifetime_ratio,
    ranked_values.size_bytes,
    ranked_values.start_time,
    ranked_values.end_time,
    ranked_values.is_at_peak,
    ranked_values.shape,
    ranked_values.opcode,
    ranked_values.instruction_name,
    ranked_values.shape_index,
    ranked_values.op_name,
    ranked_values.source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY ranked_values.function_place, ranked_values.value_place) AS place
  FROM ranked_values
  CROSS JOIN params
  WHERE ranked_values.value_place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS byte_steps,
    NULL AS lifetime_ratio,
    NULL AS size_bytes,
    NULL AS start_time,
    NULL AS end_time,
    NULL AS is_at_peak,
    NULL AS shape,
    NULL AS opcode,
    NULL AS instruction_name,
    NULL AS shape_index,
    NULL AS op_name,
    NULL AS source,
    function_modules.unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.unknown_count > 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.byte_steps,
  answers.lifetime_ratio,
  answers.size_bytes,
  answers.start_time,
  answers.end_time,
  answers.is_at_peak,
  answers.shape,
  answers.opcode,
  answers.instruction_name,
  answers.shape_index,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
