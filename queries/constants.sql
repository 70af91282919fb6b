-- title: Constants that a program holds in memory
-- group: waste
-- engines: duckdb, spark
--
-- Constant allocations are held for the whole execution and are part of the executable, once per
-- compiled program. Large ones are arrays that a traced function closes over (a table, a mask, a
-- model's weights): given as an argument instead, several programs can share one copy, and the
-- compiler has less to fold. For each run and function (its compilation with the largest known
-- peak) one row per constant allocation, largest first.
--
-- wrong when: Constants of computations that run on a stack (reducers) are listed too, a few bytes
-- each. A constant that a fusion contains has no allocation of its own and does not show. The CPU
-- may keep constants in the code instead of on a heap.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column constant_bytes HUGEINT: All constants of the module and memory space [bytes].
-- column size_bytes BIGINT: This one [bytes].
-- column size_ratio DOUBLE: Its share of all allocations of the memory space but thread-local ones
--   (0 to 1).
-- column shape VARCHAR: Shape with layout; NULL if the dump lists no value.
-- column instruction_name VARCHAR: The constant; NULL as shape.
-- column use_count BIGINT: Instructions that use it, once per operand; NULL if the dump does not
--   list uses.
-- column copied_bytes HUGEINT: Copies of it [bytes], whenever they live; 0 if there is none; NULL
--   likewise.
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
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
ranked_constants AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    function_modules.constant_bytes,
    function_modules.total_bytes - function_modules.thread_local_bytes AS footprint_bytes,
    allocations.module_id,
    allocations.size_bytes,
    "values".value_id,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.allocation_index
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS value_place,
    row_number() OVER (
      ORDER BY
        allocations.size_bytes DESC,
        function_modules.run_name,
        function_modules.function_name,
        function_modules.platform NULLS LAST,
        function_modules.color,
        allocations.allocation_index,
        "values".size_bytes DESC,
        "values".value_id
    ) AS place
  FROM function_modules
  CROSS JOIN params
  JOIN allocations
    ON allocations.module_id = function_modules.module_id
    AND allocations.color = function_modules.color
  LEFT JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  WHERE allocations.kind = 'constant'
    AND allocations.size_bytes > 0
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
constants AS (
  SELECT
    ranked_constants.run_name,
    ranked_constants.function_name,
    ranked_constants.color,
    ranked_constants.constant_bytes,
    ranked_constants.footprint_bytes,
    ranked_constants.module_id,
    ranked_constants.size_bytes,
    ranked_constants.value_id,
    ranked_constants.place
  FROM ranked_constants
  WHERE ranked_constants.value_place = 1
  ORDER BY ranked_constants.place
  LIMIT (SELECT top_n FROM params)
),
use_counts AS (
  SELECT uses.module_id, uses.value_id, count(*) AS use_count
  FROM uses
  JOIN constants ON constants.module_id = uses.module_id AND constants.value_id = uses.value_id
  GROUP BY uses.module_id, uses.value_id
),
copies AS (
  SELECT
    copy_details.module_id,
    copy_details.source_value_id,
    sum(copy_details.size_bytes) AS copied_bytes
  FROM copy_details
  JOIN constants
    ON constants.module_id = copy_details.module_id
    AND constants.value_id = copy_details.source_value_id
  GROUP BY copy_details.module_id, copy_details.source_value_id
),
answers AS (
  SELECT
    constants.run_name,
    constants.function_name,
    constants.color,
    constants.constant_bytes,
    constants.size_bytes,
    CAST(constants.size_bytes AS DOUBLE) / nullif(constants.footprint_bytes, 0) AS size_ratio,
    value_details.shape,
    value_details.instruction_name,
    CASE WHEN modules.has_used_values THEN coalesce(use_counts.use_count, 0) END AS use_count,
    CASE WHEN modules.has_used_values THEN coalesce(copies.copied_bytes, 0) END AS copied_bytes,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    constants.place
  FROM constants
  JOIN modules ON modules.module_id = constants.module_id
  LEFT JOIN value_details
    ON value_details.module_id = constants.module_id
    AND value_details.value_id = constants.value_id
  LEFT JOIN use_counts
    ON use_counts.module_id = constants.module_id
    AND use_counts.value_id = constants.value_id
  LEFT JOIN copies
    ON copies.module_id = constants.module_id
    AND copies.source_value_id = constants.value_id
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS constant_bytes,
    NULL AS size_bytes,
    NULL AS size_ratio,
    NULL AS shape,
    NULL AS instruction_name,
    NULL AS use_count,
    NULL AS copied_bytes,
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
  answers.constant_bytes,
  answers.size_bytes,
  answers.size_ratio,
  answers.shape,
  answers.instruction_name,
  answers.use_count,
  answers.copied_bytes,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
