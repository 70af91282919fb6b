-- title: Bytes of the pointer tables of tuples
-- group: waste
-- engines: duckdb, spark
--
-- A tuple that lives in memory is a table of pointers to its elements: 8 bytes each, more on the
-- TPU, where tables are padded. Results of a program and carries of loops with thousands of
-- elements make large ones, once per loop, condition and body. For each run and function (its
-- compilation with the largest known peak) the tables by the opcode that makes them; those that
-- hold most at the peak first. Fewer, larger arrays in the carry or the result (stacked parameters)
-- make them small.
--
-- wrong when: Tables in temp allocations share their bytes over time, so table_bytes is not what
-- they take together. Where the run-time passes a loop's elements one by one the table may never be
-- written, though it has its place.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_held_bytes HUGEINT: Bytes that such tables hold at the peak [bytes]; NULL without
--   live ranges.
-- column opcode VARCHAR: Opcode that makes the tuple; NULL if unknown.
-- column table_count BIGINT: Tables, those that merge others (phi) left out.
-- column table_bytes HUGEINT: Their assigned sizes together [bytes].
-- column largest_table_bytes BIGINT: Assigned size of the largest table of all [bytes].
-- column largest_element_count BIGINT: Its number of elements.
-- column largest_table VARCHAR: Instruction that makes it.
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
tables AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.peak_bytes,
    "values".module_id,
    "values".instruction_name,
    "values".size_bytes,
    "values".is_phi,
    shapes.element_count,
    coalesce(instructions.opcode, '') AS opcode,
    coalesce(peak_values.held_bytes, 0) AS held_bytes,
    row_number() OVER (
      PARTITION BY
        function_modules.run_name,
        function_modules.function_name,
        function_modules.platform,
        function_modules.color,
        coalesce(instructions.opcode, '')
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM function_modules
  CROSS JOIN params
  JOIN allocations
    ON allocations.module_id = function_modules.module_id
    AND allocations.color = function_modules.color
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN peak_values
    ON peak_values.module_id = "values".module_id
    AND peak_values.value_id = "values".value_id
  WHERE shapes.is_tuple
    AND allocations.kind <> 'thread_local'
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
answers AS (
  SELECT
    tables.run_name,
    tables.function_name,
    tables.color,
    CASE
      WHEN max(tables.peak_bytes) IS NOT NULL THEN sum(tables.held_bytes)
    END AS peak_held_bytes,
    nullif(tables.opcode, '') AS opcode,
    count(CASE WHEN NOT tables.is_phi THEN 1 END) AS table_count,
    sum(CASE WHEN tables.is_phi THEN 0 ELSE tables.size_bytes END) AS table_bytes,
    max(CASE WHEN tables.place = 1 THEN tables.size_bytes END) AS largest_table_bytes,
    max(CASE WHEN tables.place = 1 THEN tables.element_count END) AS largest_element_count,
    max(CASE WHEN tables.place = 1 THEN tables.instruction_name END) AS largest_table,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        CASE
          WHEN max(tables.peak_bytes) IS NOT NULL THEN sum(tables.held_bytes)
        END DESC NULLS LAST,
        sum(CASE WHEN tables.is_phi THEN 0 ELSE tables.size_bytes END) DESC,
        tables.run_name,
        tables.function_name,
        tables.platform NULLS LAST,
        tables.color,
        tables.opcode
    ) AS place
  FROM tables
  GROUP BY
    tables.run_name,
    tables.function_name,
    tables.platform,
    tables.color,
    tables.opcode
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS peak_held_bytes,
    NULL AS opcode,
    NULL AS table_count,
    NULL AS table_bytes,
    NULL AS largest_table_bytes,
    NULL AS largest_element_count,
    NULL AS largest_table,
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
  answers.peak_held_bytes,
  answers.opcode,
  answers.table_count,
  answers.table_bytes,
  answers.largest_table_bytes,
  answers.largest_element_count,
  answers.largest_table,
  answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
