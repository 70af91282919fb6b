-- title: Largest values of all kinds, equal ones together
-- group: live
-- engines: duckdb, spark
--
-- Which arrays are large, wherever they lie: arguments, outputs, constants and temps. Values of
-- one function that agree in kind of allocation, shape, size, opcode and source line, such as
-- those of the layers of a network, are one row. It says nothing about when they are live, and
-- values may share bytes with others: sizes do not add up to the memory that is used. Values that
-- merge others (phi), which are the same bytes again, and thread-local ones are left out.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 30: Rows to return, largest value first.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column size_bytes BIGINT: Assigned size of each of the values [bytes].
-- column value_count BIGINT: Number of such values.
-- column module_count BIGINT: Number of modules that they are in.
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp.
-- column shape VARCHAR: Shape with layout.
-- column opcode VARCHAR: Opcode of the defining instructions; NULL if unknown.
-- column source VARCHAR: Innermost file:line that is not library code; NULL if unknown.
-- column instruction_name VARCHAR: Defining instruction of one of the values, the first by name.
-- column op_name VARCHAR: Scope path of one of them, the first by name; NULL if the dump has none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
located_values AS (
  SELECT
    value_details.run_name,
    coalesce(value_details.function_name, value_details.module_key) AS function_name,
    value_details.module_id,
    value_details.color,
    value_details.size_bytes,
    value_details.allocation_kind,
    value_details.shape,
    value_details.opcode,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    value_details.instruction_name,
    value_details.op_name
  FROM value_details
  CROSS JOIN params
  WHERE (
    params.run IS NULL
    OR value_details.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR value_details.function_name GLOB params.function)
    AND (params.platform IS NULL OR value_details.platform = params.platform)
    AND (params.color IS NULL OR value_details.color = params.color)
    AND value_details.allocation_kind <> 'thread_local'
    AND NOT value_details.is_phi
    AND value_details.size_bytes > 0
),
answers AS (
  SELECT
    located_values.run_name,
    located_values.function_name,
    located_values.color,
    located_values.size_bytes,
    count(*) AS value_count,
    count(DISTINCT located_values.module_id) AS module_count,
    located_values.allocation_kind,
    located_values.shape,
    located_values.opcode,
    located_values.source,
    min(located_values.instruction_name) AS instruction_name,
    min(located_values.op_name) AS op_name,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        located_values.size_bytes DESC, located_values.run_name, located_values.function_name,
        located_values.color, located_values.allocation_kind, located_values.shape,
        located_values.opcode NULLS LAST, located_values.source NULLS LAST
    ) AS place
  FROM located_values
  GROUP BY
    located_values.run_name, located_values.function_name, located_values.color,
    located_values.size_bytes, located_values.allocation_kind, located_values.shape,
    located_values.opcode, located_values.source
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS size_bytes,
    NULL AS value_count,
    NULL AS module_count,
    NULL AS allocation_kind,
    NULL AS shape,
    NULL AS opcode,
    NULL AS source,
    NULL AS instruction_name,
    NULL AS op_name,
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
  answers.size_bytes,
  answers.value_count,
  answers.module_count,
  answers.allocation_kind,
  answers.shape,
  answers.opcode,
  answers.source,
  answers.instruction_name,
  answers.op_name,
  answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
