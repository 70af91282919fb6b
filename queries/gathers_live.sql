-- title: Results of all-gathers that are alive together
-- group: waste
-- engines: duckdb, spark
--
-- Sharded parameters (FSDP, ZeRO) are gathered before use; a schedule that gathers early or frees
-- late holds many gathered arrays at once, and the sharding saves nothing. For each run and
-- function (its compilation with the largest known peak) the instant when most bytes of all-gather
-- results are live, and the results live then, largest first; gathered_bytes is their sum.
--
-- wrong when: An all-gather inside a fusion, a custom call or a loop of permutes does not show; one
-- inside a generic async wrapper (async-start) neither. A result that is converted or reshaped
-- right away lives on under another name. Overlapping gathers with computation needs two of them
-- live. Where gathered_bytes are small beside the peak, nothing is gained.
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
-- column peak_bytes HUGEINT: Peak of the memory space [bytes].
-- column gathered_bytes HUGEINT: All-gather results live at the instant [bytes].
-- column gathered_count BIGINT: Number of them.
-- column gathered_time BIGINT: The instant, the first of equal ones [program order].
-- column size_bytes BIGINT: Assigned size of this result [bytes].
-- column start_time BIGINT: First instant at which it is live [program order].
-- column end_time BIGINT: Last instant at which it is live [program order].
-- column shape VARCHAR: Shape with layout.
-- column instruction_name VARCHAR: The all-gather.
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
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
gathered_values AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.peak_bytes,
    "values".module_id,
    "values".value_id,
    "values".size_bytes,
    live_ranges.start_time,
    live_ranges.end_time
  FROM function_modules
  CROSS JOIN params
  JOIN instructions ON instructions.module_id = function_modules.module_id
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
    AND allocations.color = function_modules.color
  JOIN shapes ON shapes.shape = "values".shape
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  WHERE instructions.opcode IN ('all-gather', 'all-gather-start', 'all-gather-done')
    AND NOT shapes.is_tuple
    AND "values".size_bytes > 0
    -- Where the peak is unknown, so is what else is live.
    AND function_modules.peak_bytes IS NOT NULL
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
changes AS (
  SELECT
    gathered_values.module_id,
    gathered_values.color,
    gathered_values.start_time AS change_time,
    gathered_values.size_bytes,
    1 AS change_count
  FROM gathered_values
  UNION ALL
  SELECT
    gathered_values.module_id,
    gathered_values.color,
    -- Damaged dumps have times near 2^63.
    least(gathered_values.end_time, 9223372036854775806) + 1 AS change_time,
    -gathered_values.size_bytes AS size_bytes,
    -1 AS change_count
  FROM gathered_values
),
steps AS (
  SELECT
    changes.module_id,
    changes.color,
    changes.change_time,
    sum(sum(changes.size_bytes)) OVER (
      PARTITION BY changes.module_id, changes.color
      ORDER BY changes.change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS gathered_bytes
  FROM changes
  GROUP BY changes.module_id, changes.color, changes.change_time
),
ranked_steps AS (
  SELECT
    steps.module_id,
    steps.color,
    steps.change_time AS gathered_time,
    steps.gathered_bytes,
    row_number() OVER (
      PARTITION BY steps.module_id, steps.color
      ORDER BY steps.gathered_bytes DESC, steps.change_time
    ) AS place
  FROM steps
),
answers AS (
  SELECT
    gathered_values.run_name,
    gathered_values.function_name,
    gathered_values.color,
    gathered_values.peak_bytes,
    ranked_steps.gathered_bytes,
    count(*) OVER (PARTITION BY gathered_values.module_id, gathered_values.color) AS gathered_count,
    ranked_steps.gathered_time,
    gathered_values.size_bytes,
    gathered_values.start_time,
    gathered_values.end_time,
    value_details.shape,
    value_details.instruction_name,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        ranked_steps.gathered_bytes DESC,
        gathered_values.run_name,
        gathered_values.function_name,
        gathered_values.platform NULLS LAST,
        gathered_values.color,
        gathered_values.size_bytes DESC,
        gathered_values.start_time,
        gathered_values.value_id
    ) AS place
  FROM gathered_values
  JOIN ranked_steps
    ON ranked_steps.module_id = gathered_values.module_id
    AND ranked_steps.color = gathered_values.color
    AND ranked_steps.place = 1
  JOIN value_details
    ON value_details.module_id = gathered_values.module_id
    AND value_details.value_id = gathered_values.value_id
  WHERE gathered_values.start_time <= ranked_steps.gathered_time
    AND gathered_values.end_time >= ranked_steps.gathered_time
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS peak_bytes,
    NULL AS gathered_bytes,
    NULL AS gathered_count,
    NULL AS gathered_time,
    NULL AS size_bytes,
    NULL AS start_time,
    NULL AS end_time,
    NULL AS shape,
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
  answers.peak_bytes,
  answers.gathered_bytes,
  answers.gathered_count,
  answers.gathered_time,
  answers.size_bytes,
  answers.start_time,
  answers.end_time,
  answers.shape,
  answers.instruction_name,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
