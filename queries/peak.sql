-- title: Values that hold memory at the peak, largest first
-- group: live
-- engines: duckdb, spark
--
-- What is in memory at the instant when most bytes are occupied, the peak of the memory space.
-- Allocations other than temp and thread-local ones are held for the whole run and count as a
-- whole, under the value that stands for them. In temp allocations the values live at that instant
-- count; bytes that several of them share count once, for the first of them by offset, so that all
-- rows of a module add up to its peak. For each run and function the module with the largest
-- known peak is shown; a function with an unknown one has a row that says why.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_functions BIGINT = 1: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 20: Values to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column held_bytes BIGINT: Bytes held by the value and by none before it [bytes].
-- column cumulative_ratio DOUBLE: Share of the peak held by this and all rows above it (0 to 1).
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp.
-- column shape VARCHAR: Shape of the value with layout; NULL if the dump lists no value.
-- column opcode VARCHAR: Opcode of the defining instruction; NULL if unknown.
-- column instruction_name VARCHAR: Defining instruction; NULL if the dump lists no value.
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
    coalesce(getvariable('top_functions')::BIGINT, 1) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
ranked_functions AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.module_id,
    function_modules.color,
    function_modules.peak_bytes,
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
ranked_values AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_functions.function_place,
    ranked_functions.peak_bytes,
    peak_values.module_id,
    peak_values.value_id,
    peak_values.held_bytes,
    peak_values.allocation_kind,
    row_number() OVER (
      PARTITION BY ranked_functions.function_place
      ORDER BY
        peak_values.held_bytes DESC, peak_values.allocation_index, peak_values.value_id NULLS LAST
    ) AS value_place
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_values
    ON peak_values.module_id = ranked_functions.module_id
    AND peak_values.color = ranked_functions.color
  WHERE ranked_functions.function_place <= params.top_functions
),
summed_values AS (
  SELECT
    ranked_values.run_name,
    ranked_values.function_name,
    ranked_values.color,
    ranked_values.function_place,
    ranked_values.value_place,
    ranked_values.module_id,
    ranked_values.value_id,
    ranked_values.held_bytes,
    CAST(
      sum(ranked_values.held_bytes) OVER (
        PARTITION BY ranked_values.function_place
        ORDER BY ranked_values.value_place
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS DOUBLE
    ) / nullif(ranked_values.peak_bytes, 0) AS cumulative_ratio,
    ranked_values.allocation_kind
  FROM ranked_values
),
answers AS (
  SELECT
    summed_values.run_name,
    summed_values.function_name,
    summed_values.color,
    summed_values.held_bytes,
    summed_values.cumulative_ratio,
    summed_values.allocation_kind,
    value_details.shape,
    value_details.opcode,
    value_details.instruction_name,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY summed_values.function_place, summed_values.value_place) AS place
  FROM summed_values
  CROSS JOIN params
  LEFT JOIN value_details
    ON value_details.module_id = summed_values.module_id
    AND value_details.value_id = summed_values.value_id
  WHERE summed_values.value_place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS held_bytes,
    NULL AS cumulative_ratio,
    NULL AS allocation_kind,
    NULL AS shape,
    NULL AS opcode,
    NULL AS instruction_name,
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
  answers.held_bytes,
  answers.cumulative_ratio,
  answers.allocation_kind,
  answers.shape,
  answers.opcode,
  answers.instruction_name,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
