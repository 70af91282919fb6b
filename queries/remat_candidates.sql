-- title: Values at the peak that are cheap to compute again
-- group: waste
-- engines: duckdb, spark
--
-- A temp value that is live across the peak without being used there could be thrown away and
-- computed again after it (jax.checkpoint, a policy, or moving the computation). Listed are values
-- that are held at the peak, begin before and end after it, live long, are not used at it, and come
-- from an instruction that costs little: elementwise operations, broadcast, convert, iota, reshape,
-- transpose, slice, pad, concatenate, copy, or a fusion of kind kLoop, which is made of them. What
-- is saved is the bytes held minus the operands that would have to stay for it: those in temp
-- allocations that are not held at the peak. For each run and function (its compilation with the
-- largest known peak) the largest saving first.
--
-- A stack that a loop fills for the backward pass (query loop-residuals) is judged by the operation
-- that makes its slices, and costs one slice at a time; a policy of jax.checkpoint can leave it
-- out. Inputs of the layer, which a scan saves whatever the policy, are none.
--
-- wrong when: A kLoop fusion can hold a reduction or a gather, and what one calls cheap may read
-- much. Operands are counted one step back; they may need others. Several rows may count on the
-- same operand staying, or one be the operand of another, so savings do not simply add up. Past the
-- peak another instant, almost as high, may be the next limit. A value that is updated in place, or
-- whose bytes another value continues, cannot be dropped.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param min_bytes BIGINT = 1: Smallest saving to show [bytes].
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest life to show, as share of the schedule (0 to 1).
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the memory space [bytes].
-- column saved_bytes HUGEINT: What dropping the value would save at the peak [bytes].
-- column held_bytes HUGEINT: Bytes that it holds at the peak [bytes].
-- column kept_bytes HUGEINT: Operands that would have to stay for it, of a stack one slice [bytes].
-- column saving_bytes HUGEINT: By how much the peak falls without it, whatever stays (query
--   savings) [bytes].
-- column lifetime_ratio DOUBLE: Its life as share of the schedule (0 to 1); NULL for a stack.
-- column idle_time BIGINT: Time around the peak in which nothing uses it [program order]; NULL for
--   a stack.
-- column shape VARCHAR: Shape with layout.
-- column opcode VARCHAR: Opcode of the defining instruction.
-- column instruction_name VARCHAR: Defining instruction.
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Its innermost file:line that is not library code, "saved file:line" for
--   what a loop stacks; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function or the uses of its values are
--   unknown, in a row of its own that has nothing else, comes first and does not count in top_n;
--   NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('min_bytes')::BIGINT, 1) AS min_bytes,
    coalesce(getvariable('min_lifetime_ratio')::DOUBLE, 0.1) AS min_lifetime_ratio,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
functions AS (
  SELECT
    run_name, function_name, color, module_id, peak_bytes, peak_time, schedule_length,
    unknown_reason, name_place
  FROM answered_functions_with_uses
),
steps AS (
  SELECT
    module_id, instruction_name, program_order, opcode,
    opcode = 'fusion' AND regexp_matches(text, 'kind=kLoop') AS is_loop_fusion
  FROM instructions
  WHERE module_id IN (SELECT module_id FROM functions)
),
crossing_values AS (
  SELECT
    functions.name_place, functions.peak_time, held.module_id, held.color, held.value_id,
    held.held_bytes, "values".shape, "values".instruction_name, steps.opcode,
    ranges.start_time, ranges.end_time,
    CAST(ranges.end_time - ranges.start_time AS DOUBLE) / nullif(functions.schedule_length, 0)
      AS lifetime_ratio,
    origins.origin_kind IS NOT NULL AS is_stack,
    origins.slice_bytes,
    coalesce(origins.opcode, steps.opcode) IN (
      'abs', 'add', 'and', 'atan2', 'bitcast-convert', 'broadcast', 'cbrt', 'ceil', 'clamp',
      'compare', 'complex', 'concatenate', 'convert', 'copy', 'cosine', 'divide',
      'dynamic-slice', 'erf', 'exponential', 'exponential-minus-one', 'floor', 'imag', 'iota',
      'is-finite', 'log', 'log-plus-one', 'logistic', 'maximum', 'minimum', 'multiply', 'negate',
      'not', 'or', 'pad', 'power', 'real', 'reduce-precision', 'remainder', 'reshape', 'reverse',
      'round-nearest-afz', 'round-nearest-even', 'rsqrt', 'select', 'shift-left',
      'shift-right-arithmetic', 'shift-right-logical', 'sign', 'sine', 'slice', 'sqrt',
      'subtract', 'tan', 'tanh', 'transpose', 'xor'
    )
    OR (origins.origin_kind IS NULL AND steps.is_loop_fusion) AS is_cheap
  FROM functions
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
  JOIN "values" ON "values".module_id = held.module_id AND "values".value_id = held.value_id
  JOIN steps
    ON steps.module_id = "values".module_id
    AND steps.instruction_name = "values".instruction_name
  JOIN live_ranges AS ranges
    ON ranges.module_id = held.module_id
    AND ranges.value_id = held.value_id
  LEFT JOIN value_origins AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND origins.origin_kind = 'stacked'
  WHERE held.allocation_kind = 'temp'
    AND (
      -- What a loop stacks in the forward pass of a gradient.
      (
        NOT origins.is_layer_input
        AND origins.op_name GLOB '*jvp(*'
        AND NOT origins.op_name GLOB '*transpose(*'
      )
      OR (
        origins.origin_kind IS NULL
        AND ranges.start_time < functions.peak_time
        AND ranges.end_time > functions.peak_time
        AND NOT "values".is_phi
        AND "values".shape_index = '{}'
      )
    )
),
use_times AS (
  SELECT
    crossing_values.module_id, crossing_values.value_id,
    max(CASE WHEN users.program_order <= crossing_values.peak_time THEN users.program_order END)
      AS previous_use_time,
    min(CASE WHEN users.program_order >= crossing_values.peak_time THEN users.program_order END)
      AS next_use_time
  FROM crossing_values
  JOIN uses
    ON uses.module_id = crossing_values.module_id
    AND uses.value_id = crossing_values.value_id
  JOIN steps AS users
    ON users.module_id = uses.module_id
    AND users.instruction_name = uses.instruction_name
  GROUP BY crossing_values.module_id, crossing_values.value_id
),
operands AS (
  SELECT DISTINCT
    crossing_values.module_id, crossing_values.value_id, crossing_values.peak_time,
    uses.value_id AS operand_id
  FROM crossing_values
  JOIN uses
    ON uses.module_id = crossing_values.module_id
    AND uses.instruction_name = crossing_values.instruction_name
),
kept_operands AS (
  SELECT
    operands.module_id, operands.value_id,
    sum("values".size_bytes) AS kept_bytes
  FROM operands
  JOIN "values"
    ON "values".module_id = operands.module_id
    AND "values".value_id = operands.operand_id
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  JOIN live_ranges
    ON live_ranges.module_id = operands.module_id
    AND live_ranges.value_id = operands.operand_id
  WHERE allocations.kind = 'temp'
    AND live_ranges.end_time < operands.peak_time
  GROUP BY operands.module_id, operands.value_id
),
candidates AS (
  SELECT
    crossing_values.module_id, crossing_values.color,
    crossing_values.held_bytes
      - coalesce(crossing_values.slice_bytes, kept_operands.kept_bytes, 0) AS saved_bytes,
    crossing_values.held_bytes,
    coalesce(crossing_values.slice_bytes, kept_operands.kept_bytes, 0) AS kept_bytes,
    CASE WHEN NOT crossing_values.is_stack THEN crossing_values.lifetime_ratio END
      AS lifetime_ratio,
    CASE
      WHEN NOT crossing_values.is_stack
        THEN coalesce(use_times.next_use_time, crossing_values.end_time)
          - coalesce(use_times.previous_use_time, crossing_values.start_time)
    END AS idle_time,
    crossing_values.shape, crossing_values.opcode, crossing_values.instruction_name,
    crossing_values.value_id,
    row_number() OVER (
      ORDER BY
        crossing_values.held_bytes
          - coalesce(crossing_values.slice_bytes, kept_operands.kept_bytes, 0) DESC,
        crossing_values.name_place, crossing_values.value_id
    ) AS place
  FROM crossing_values
  CROSS JOIN params
  LEFT JOIN use_times
    ON use_times.module_id = crossing_values.module_id
    AND use_times.value_id = crossing_values.value_id
  LEFT JOIN kept_operands
    ON kept_operands.module_id = crossing_values.module_id
    AND kept_operands.value_id = crossing_values.value_id
  WHERE crossing_values.is_cheap
    AND crossing_values.held_bytes
      - coalesce(crossing_values.slice_bytes, kept_operands.kept_bytes, 0) >= params.min_bytes
    AND (
      crossing_values.is_stack
      OR (
        crossing_values.lifetime_ratio >= params.min_lifetime_ratio
        AND coalesce(use_times.next_use_time, crossing_values.end_time) > crossing_values.peak_time
      )
    )
)
SELECT
  functions.run_name, functions.function_name, functions.color,
  CASE WHEN candidates.place IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  candidates.saved_bytes, candidates.held_bytes, candidates.kept_bytes, savings.saving_bytes,
  candidates.lifetime_ratio, candidates.idle_time, candidates.shape, candidates.opcode,
  candidates.instruction_name,
  coalesce(origins.op_name, value_details.op_name) AS op_name,
  coalesce(origins.relation || origins.own_source, value_details.own_source) AS source,
  functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN candidates
  ON candidates.module_id = functions.module_id
  AND candidates.color = functions.color
  AND candidates.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = candidates.module_id
  AND value_details.value_id = candidates.value_id
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = candidates.module_id
  AND origins.value_id = candidates.value_id
LEFT JOIN peak_savings AS savings
  ON savings.module_id = candidates.module_id
  AND savings.color = candidates.color
  AND savings.value_id = candidates.value_id
WHERE candidates.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY candidates.place NULLS FIRST, functions.name_place;
