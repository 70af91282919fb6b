-- title: Temp values that stay in memory while nothing touches them
-- group: live
-- engines: duckdb, spark
--
-- A value is touched when it is defined and by each scheduled instruction that uses it; bitcasts,
-- tuples and get-tuple-elements only pass it on and do not count. Between two touches next to each
-- other in program order, and between the last one and the end of its live range, it is idle: it
-- takes memory and nobody reads it. Each temp value is shown with its longest idle time, by default
-- among those that the peak lies in, for only these raise it. Values are ranked by size times idle
-- instants. For each run and function the module with the largest known peak is shown.
--
-- An idle time that a use ends (reason before_use) belongs to a value computed long before it is
-- needed: recompute it, offload it, or make its consumer run earlier, all the more where that
-- consumer is small. One that no use ends (after_last_use) belongs to a value that something else
-- keeps: a loop state or the result of a computation that it is part of, or a value that shares
-- its bytes.
--
-- wrong when: program order is not time, an idle time of many steps can be short. A value that a
-- loop's body hands to its next iteration is idle on purpose from its last use to the end of the
-- body, and a loop's body is told once, however often it runs. A use by a while or a conditional
-- counts where the value's live range ends, at the begin of the body. What a lower peak gains is
-- less than the value's size if another instant needs nearly as much.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param at_peak BOOLEAN = true: Only idle times that the peak lies in.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Values to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column idle_byte_steps DOUBLE: size_bytes times the instants strictly between idle_start_time and
--   idle_end_time [bytes x program order].
-- column size_bytes BIGINT: Assigned size of the value [bytes].
-- column idle_start_time BIGINT: Instant of the touch before the idle time [program order].
-- column idle_end_time BIGINT: Instant of the next touch, or the last instant of the live range
--   [program order].
-- column reason VARCHAR: before_use or after_last_use.
-- column is_at_peak BOOLEAN: Whether the peak lies in the idle time.
-- column consumer_name VARCHAR: Instruction that touches the value next, the first by name; NULL
--   after the last use.
-- column consumer_bytes HUGEINT: Assigned size of what that instruction defines [bytes]; NULL if
--   there is none or it defines nothing.
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode VARCHAR: Opcode of the defining instruction; NULL if unknown.
-- column instruction_name VARCHAR: Defining instruction.
-- column shape_index VARCHAR: Index of the value in that instruction's shape, {} for all of it.
-- column op_name VARCHAR: Scope path of the operation; NULL if the dump has none.
-- column source VARCHAR: Innermost file:line that is not library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function or the uses of its values are
--   unknown, in a row of its own that has nothing else, comes first and does not count in top_n;
--   NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('at_peak')::BOOLEAN, TRUE) AS at_peak,
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
  -- Without the list of uses everything would look idle.
  JOIN modules
    ON modules.module_id = function_modules.module_id
    AND modules.has_used_values
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
temps AS (
  SELECT
    ranked_functions.function_place,
    ranked_functions.peak_time,
    value_details.module_id,
    value_details.value_id,
    value_details.size_bytes,
    value_details.start_time,
    value_details.end_time
  FROM ranked_functions
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = ranked_functions.module_id
    AND value_details.color = ranked_functions.color
  WHERE ranked_functions.function_place <= params.top_functions
    AND value_details.allocation_kind = 'temp'
    AND value_details.size_bytes > 0
    AND value_details.start_time IS NOT NULL
),
touches AS (
  SELECT
    temps.module_id,
    temps.value_id,
    temps.start_time AS touch_time,
    NULL AS user_name
  FROM temps
  UNION ALL
  SELECT
    temps.module_id,
    temps.value_id,
    least(instructions.program_order, temps.end_time) AS touch_time,
    uses.instruction_name AS user_name
  FROM temps
  JOIN uses
    ON uses.module_id = temps.module_id
    AND uses.value_id = temps.value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
  WHERE instructions.program_order >= temps.start_time
    AND coalesce(instructions.opcode, '') NOT IN ('bitcast', 'tuple', 'get-tuple-element')
  UNION ALL
  SELECT
    temps.module_id,
    temps.value_id,
    temps.end_time AS touch_time,
    NULL AS user_name
  FROM temps
),
moments AS (
  SELECT
    touches.module_id,
    touches.value_id,
    touches.touch_time,
    min(touches.user_name) AS user_name
  FROM touches
  GROUP BY touches.module_id, touches.value_id, touches.touch_time
),
spans AS (
  SELECT
    moments.module_id,
    moments.value_id,
    lag(moments.touch_time) OVER (
      PARTITION BY moments.module_id, moments.value_id
      ORDER BY moments.touch_time
    ) AS idle_start_time,
    moments.touch_time AS idle_end_time,
    moments.user_name
  FROM moments
),
ranked_spans AS (
  SELECT
    temps.function_place,
    temps.module_id,
    temps.value_id,
    temps.size_bytes,
    spans.idle_start_time,
    spans.idle_end_time,
    spans.user_name,
    spans.idle_start_time < temps.peak_time AND temps.peak_time < spans.idle_end_time
      AS is_at_peak,
    row_number() OVER (
      PARTITION BY temps.function_place, temps.value_id
      ORDER BY spans.idle_end_time - spans.idle_start_time DESC, spans.idle_start_time
    ) AS span_place
  FROM spans
  CROSS JOIN params
  JOIN temps
    ON temps.module_id = spans.module_id
    AND temps.value_id = spans.value_id
  WHERE spans.idle_end_time - spans.idle_start_time > 1
    AND (
      NOT params.at_peak
      OR (spans.idle_start_time < temps.peak_time AND temps.peak_time < spans.idle_end_time)
    )
),
ranked_values AS (
  SELECT
    ranked_spans.function_place,
    ranked_spans.module_id,
    ranked_spans.value_id,
    ranked_spans.size_bytes,
    ranked_spans.idle_start_time,
    ranked_spans.idle_end_time,
    ranked_spans.user_name,
    ranked_spans.is_at_peak,
    CAST(ranked_spans.size_bytes AS DOUBLE)
      * (ranked_spans.idle_end_time - ranked_spans.idle_start_time - 1) AS idle_byte_steps,
    row_number() OVER (
      PARTITION BY ranked_spans.function_place
      ORDER BY
        CAST(ranked_spans.size_bytes AS DOUBLE)
          * (ranked_spans.idle_end_time - ranked_spans.idle_start_time - 1) DESC,
        ranked_spans.value_id
    ) AS value_place
  FROM ranked_spans
  WHERE ranked_spans.span_place = 1
),
consumers AS (
  SELECT
    "values".module_id,
    "values".instruction_name,
    sum("values".size_bytes) AS consumer_bytes
  FROM "values"
  WHERE EXISTS (
    SELECT 1
    FROM ranked_functions
    WHERE ranked_functions.module_id = "values".module_id
  )
  GROUP BY "values".module_id, "values".instruction_name
),
answers AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_values.idle_byte_steps,
    ranked_values.size_bytes,
    ranked_values.idle_start_time,
    ranked_values.idle_end_time,
    CASE WHEN ranked_values.user_name IS NULL THEN 'after_last_use' ELSE 'before_use' END AS reason,
    ranked_values.is_at_peak,
    ranked_values.user_name AS consumer_name,
    consumers.consumer_bytes,
    value_details.shape,
    value_details.opcode,
    value_details.instruction_name,
    value_details.shape_index,
    value_details.op_name,
    value_details.own_source_file || ':' || value_details.own_source_line AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY ranked_values.function_place, ranked_values.value_place) AS place
  FROM ranked_values
  CROSS JOIN params
  JOIN ranked_functions ON ranked_functions.function_place = ranked_values.function_place
  JOIN value_details
    ON value_details.module_id = ranked_values.module_id
    AND value_details.value_id = ranked_values.value_id
  LEFT JOIN consumers
    ON consumers.module_id = ranked_values.module_id
    AND consumers.instruction_name = ranked_values.user_name
  WHERE ranked_values.value_place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS idle_byte_steps,
    NULL AS size_bytes,
    NULL AS idle_start_time,
    NULL AS idle_end_time,
    NULL AS reason,
    NULL AS is_at_peak,
    NULL AS consumer_name,
    NULL AS consumer_bytes,
    NULL AS shape,
    NULL AS opcode,
    NULL AS instruction_name,
    NULL AS shape_index,
    NULL AS op_name,
    NULL AS source,
    coalesce(function_modules.unknown_reason, 'the dump does not list uses') AS unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  JOIN modules ON modules.module_id = function_modules.module_id
  WHERE (function_modules.unknown_count > 0 OR NOT modules.has_used_values)
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
  answers.idle_byte_steps,
  answers.size_bytes,
  answers.idle_start_time,
  answers.idle_end_time,
  answers.reason,
  answers.is_at_peak,
  answers.consumer_name,
  answers.consumer_bytes,
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
