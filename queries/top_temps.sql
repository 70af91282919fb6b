-- title: Largest temp values and temp arenas per jitted function
-- group: live
-- engines: duckdb, spark
--
-- For each run and function the module with the largest temp arena in a memory space, and the
-- largest values placed in that arena. The arena is the sum of the temp allocations, which the
-- program takes as a whole; its values share addresses at different times, so their sizes do not
-- add up to it. Values that merge others (phi) are left out: they are the same bytes again.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_functions BIGINT = 10: Functions (of one run and memory space) to show, largest temp
--   arena first.
-- param top_n BIGINT = 5: Values to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column temp_bytes HUGEINT: Temp arena of the module [bytes].
-- column size_bytes BIGINT: Assigned size of the value [bytes].
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode VARCHAR: Opcode of the defining instruction; NULL if unknown.
-- column instruction_name VARCHAR: Defining instruction.
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
    coalesce(getvariable('top_functions')::BIGINT, 10) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 5) AS top_n
),
arenas AS (
  SELECT
    memory_figures.run_name,
    coalesce(memory_figures.function_name, memory_figures.module_key) AS function_name,
    memory_figures.module_id,
    memory_figures.color,
    memory_figures.temp_bytes,
    row_number() OVER (
      PARTITION BY
        memory_figures.run_name,
        coalesce(memory_figures.function_name, memory_figures.module_key),
        memory_figures.color
      ORDER BY memory_figures.temp_bytes DESC, memory_figures.module_key
    ) AS module_place
  FROM memory_figures
  CROSS JOIN params
  WHERE (
    params.run IS NULL
    OR memory_figures.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR memory_figures.function_name GLOB params.function)
    AND (params.platform IS NULL OR memory_figures.platform = params.platform)
    AND (params.color IS NULL OR memory_figures.color = params.color)
    AND memory_figures.temp_bytes > 0
),
ranked_functions AS (
  SELECT
    arenas.run_name,
    arenas.function_name,
    arenas.module_id,
    arenas.color,
    arenas.temp_bytes,
    row_number() OVER (
      ORDER BY arenas.temp_bytes DESC, arenas.run_name, arenas.function_name, arenas.color
    ) AS function_place
  FROM arenas
  WHERE arenas.module_place = 1
),
ranked_values AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_functions.temp_bytes,
    ranked_functions.function_place,
    value_details.size_bytes,
    value_details.shape,
    value_details.opcode,
    value_details.instruction_name,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    row_number() OVER (
      PARTITION BY ranked_functions.function_place
      ORDER BY value_details.size_bytes DESC, value_details.value_id
    ) AS value_place
  FROM ranked_functions
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = ranked_functions.module_id
    AND value_details.color = ranked_functions.color
  WHERE ranked_functions.function_place <= params.top_functions
    AND value_details.allocation_kind = 'temp'
    AND NOT value_details.is_phi
),
answers AS (
  SELECT
    ranked_values.run_name,
    ranked_values.function_name,
    ranked_values.color,
    ranked_values.temp_bytes,
    ranked_values.size_bytes,
    ranked_values.shape,
    ranked_values.opcode,
    ranked_values.instruction_name,
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
    NULL AS temp_bytes,
    NULL AS size_bytes,
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
  answers.temp_bytes,
  answers.size_bytes,
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
