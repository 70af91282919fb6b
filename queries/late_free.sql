-- title: Temp values that stay in memory while nothing uses them
-- group: saving
-- engines: duckdb, spark, sail
--
-- A value is touched when it is defined and by each scheduled instruction that uses it; those that
-- only forward it do not count: bitcast, tuple, get-tuple-element, add-dependency, domain and
-- opt-barrier. If the opcode of a use is unknown, because there is no HLO text, the function has no
-- rows. Between two consecutive touches in program order, and between the last one and the end of
-- its live range, the value is idle: it takes memory and nothing reads it. Shows each temp value
-- with its longest idle time, by default among those that contain the peak, since only these raise
-- it. Values are ranked by size times idle instants. Shows the module with the largest need for
-- each run and function.
--
-- An idle time that ends with a use (reason before_use) belongs to a value computed long before it
-- is needed: recompute it, offload it, or run its consumer earlier, especially if that consumer is
-- small. One that does not (after_last_use) belongs to a value that something else keeps: a loop
-- state or the result of a computation that it is part of, or a value that shares its bytes.
--
-- wrong when: program order is not time, so an idle time of many steps can be short. A value that a
-- loop body passes to the next iteration is idle by design from its last use to the end of the
-- body, and a loop body is listed once, however often it runs. A use by a while or a conditional
-- counts where the value's live range ends, at the beginning of the body. The peak falls by less
-- than the value's size if another instant needs nearly as much.
--
-- param run, function, platform, color, module, peak, step
-- param at_peak BOOLEAN = true: Only idle times that contain the peak.
-- param top_functions
-- param top_n BIGINT = 10: Values to show for each.
--
-- column run_name, function_name, platform, color
-- column idle_byte_steps DOUBLE: size_bytes times the instants strictly between idle_start_time and
--   idle_end_time [bytes x program order].
-- column size_bytes BIGINT: Assigned size of the value [bytes].
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak falls [bytes]:
--   saving_bytes if its last use is before the peak, else 0, because it may be needed where it is;
--   NULL where saving_bytes is.
-- column saving_bytes HUGEINT: How far it would fall without it (query savings) [bytes]; NULL if it
--   holds nothing there.
-- column sureness VARCHAR: How sure that is (advice_sureness).
-- column idle_start_time BIGINT: Instant of the touch before the idle time [program order].
-- column idle_end_time BIGINT: Instant of the next touch, or the last instant of the live range
--   [program order].
-- column reason VARCHAR: before_use or after_last_use.
-- column is_at_peak BOOLEAN: Whether the idle time contains the peak.
-- column consumer_name VARCHAR: Instruction that touches the value next, the first by name; NULL
--   after the last use.
-- column consumer_bytes HUGEINT: Assigned size of the values that this instruction defines [bytes];
--   NULL if there is no such instruction or it defines none.
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode, instruction_name, shape_index, op_name
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" for what the compiler made for that
--   line, "library file:line" if everything is library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function, or the uses of its values and their
--   opcodes, are unknown, in a separate row that has nothing else, comes first and does not count
--   toward top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('at_peak')::BOOLEAN, TRUE) AS at_peak,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
functions AS (
  SELECT
    peak_time, module_id, color, place, run_name, function_name, platform, unknown_reason,
    name_place
  FROM answered_functions_with_uses
),
asked_temps AS (
  SELECT
    functions.peak_time, value_details.module_id, value_details.color, value_details.value_id,
    value_details.size_bytes, value_details.start_time, value_details.end_time
  FROM functions
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = functions.module_id
    AND value_details.color = functions.color
  WHERE functions.place <= params.top_functions
    AND value_details.allocation_kind = 'temp'
    AND value_details.size_bytes > 0
    AND value_details.start_time IS NOT NULL
),
asked_uses AS (
  SELECT
    temps.module_id, temps.color, temps.value_id, temps.end_time, uses.instruction_name,
    instructions.program_order, instructions.opcode
  FROM asked_temps AS temps
  JOIN uses ON uses.module_id = temps.module_id AND uses.value_id = temps.value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
  WHERE instructions.program_order >= temps.start_time
),
unknown_uses AS (
  SELECT DISTINCT module_id, color
  FROM asked_uses
  WHERE opcode IS NULL
),
temps AS (
  SELECT
    asked_temps.peak_time, asked_temps.module_id, asked_temps.color, asked_temps.value_id,
    asked_temps.size_bytes, asked_temps.start_time, asked_temps.end_time
  FROM asked_temps
  LEFT JOIN unknown_uses
    ON unknown_uses.module_id = asked_temps.module_id
    AND unknown_uses.color = asked_temps.color
  WHERE unknown_uses.module_id IS NULL
),
touches AS (
  SELECT module_id, value_id, start_time AS touch_time, NULL AS user_name
  FROM temps
  UNION ALL
  SELECT
    module_id, value_id,
    least(program_order, end_time) AS touch_time,
    instruction_name AS user_name
  FROM asked_uses
  WHERE opcode NOT IN (
    'add-dependency', 'bitcast', 'domain', 'get-tuple-element', 'opt-barrier', 'tuple'
  )
  UNION ALL
  SELECT module_id, value_id, end_time AS touch_time, NULL AS user_name
  FROM temps
),
spans AS (
  SELECT
    module_id, value_id,
    lag(touch_time) OVER (PARTITION BY module_id, value_id ORDER BY touch_time) AS idle_start_time,
    touch_time AS idle_end_time,
    min(user_name) AS user_name
  FROM touches
  GROUP BY module_id, value_id, touch_time
),
ranked_spans AS (
  SELECT
    temps.module_id, temps.color, temps.value_id, temps.size_bytes,
    CAST(temps.size_bytes AS DOUBLE) * (spans.idle_end_time - spans.idle_start_time - 1)
      AS idle_byte_steps,
    spans.idle_start_time, spans.idle_end_time, spans.user_name,
    spans.idle_start_time < temps.peak_time AND temps.peak_time < spans.idle_end_time
      AS is_at_peak,
    row_number() OVER (
      PARTITION BY temps.module_id, temps.value_id
      ORDER BY spans.idle_end_time - spans.idle_start_time DESC, spans.idle_start_time
    ) AS span_place
  FROM spans
  CROSS JOIN params
  JOIN temps ON temps.module_id = spans.module_id AND temps.value_id = spans.value_id
  WHERE spans.idle_end_time - spans.idle_start_time > 1
    AND (
      NOT params.at_peak
      OR (spans.idle_start_time < temps.peak_time AND temps.peak_time < spans.idle_end_time)
    )
),
ranked_values AS (
  SELECT
    module_id, color, value_id, size_bytes, idle_byte_steps, idle_start_time, idle_end_time,
    user_name, is_at_peak,
    row_number() OVER (PARTITION BY module_id, color ORDER BY idle_byte_steps DESC, value_id)
      AS place
  FROM ranked_spans
  WHERE span_place = 1
),
consumers AS (
  SELECT
    "values".module_id, "values".instruction_name,
    sum("values".size_bytes) AS consumer_bytes
  FROM "values"
  WHERE EXISTS (SELECT 1 FROM temps WHERE temps.module_id = "values".module_id)
  GROUP BY "values".module_id, "values".instruction_name
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  ranked_values.idle_byte_steps, ranked_values.size_bytes,
  CASE
    WHEN savings.saving_bytes IS NULL THEN NULL
    WHEN late_values.value_id IS NOT NULL THEN savings.saving_bytes
    ELSE 0
  END AS low_saving_bytes,
  savings.saving_bytes, advice_sureness.sureness,
  ranked_values.idle_start_time, ranked_values.idle_end_time,
  CASE
    WHEN ranked_values.user_name IS NOT NULL THEN 'before_use'
    WHEN ranked_values.place IS NOT NULL THEN 'after_last_use'
  END AS reason,
  ranked_values.is_at_peak, ranked_values.user_name AS consumer_name,
  consumers.consumer_bytes, value_details.shape, value_details.opcode,
  value_details.instruction_name, value_details.shape_index, value_details.op_name,
  value_sources.source_line AS source,
  CASE
    WHEN unknown_uses.module_id IS NULL THEN functions.unknown_reason
    ELSE 'which uses read a value and which pass it on is unknown: no HLO text'
  END AS unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked_values
  ON ranked_values.module_id = functions.module_id
  AND ranked_values.color = functions.color
  AND ranked_values.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = ranked_values.module_id
  AND value_details.value_id = ranked_values.value_id
LEFT JOIN value_sources
  ON value_sources.module_id = ranked_values.module_id
  AND value_sources.value_id = ranked_values.value_id
LEFT JOIN answered_idle_values AS late_values
  ON late_values.module_id = ranked_values.module_id
  AND late_values.color = ranked_values.color
  AND late_values.value_id = ranked_values.value_id
  AND late_values.is_late
LEFT JOIN peak_savings AS savings
  ON savings.module_id = ranked_values.module_id
  AND savings.color = ranked_values.color
  AND savings.value_id = ranked_values.value_id
LEFT JOIN consumers
  ON consumers.module_id = ranked_values.module_id
  AND consumers.instruction_name = ranked_values.user_name
LEFT JOIN unknown_uses
  ON unknown_uses.module_id = functions.module_id
  AND unknown_uses.color = functions.color
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE WHEN ranked_values.place IS NOT NULL THEN 'late_free' END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (
    coalesce(CASE WHEN late_values.value_id IS NOT NULL THEN savings.saving_bytes END, 0) <= 0
  )
WHERE ranked_values.place IS NOT NULL
  OR functions.unknown_reason IS NOT NULL
  OR unknown_uses.module_id IS NOT NULL
ORDER BY
  CASE WHEN ranked_values.place IS NULL THEN 0 ELSE 1 END, functions.place, functions.name_place,
  ranked_values.place;
