-- Values of temp allocations at the peak that could be recomputed or offloaded.
CREATE OR REPLACE VIEW answered_idle_values AS
WITH functions AS (
  SELECT
    answered_functions_with_uses.module_id, answered_functions_with_uses.color,
    answered_functions_with_uses.platform, answered_functions_with_uses.name_place,
    answered_functions_with_uses.peak_time, answered_functions_with_uses.schedule_length
  FROM answered_functions_with_uses
  WHERE answered_functions_with_uses.module_id IS NOT NULL
),
steps AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.program_order,
    instructions.opcode, instructions.op_name,
    instructions.opcode = 'fusion' AND regexp_matches(instructions.text, 'kind=kLoop')
      AS is_loop_fusion
  FROM instructions
  WHERE instructions.module_id IN (SELECT functions.module_id FROM functions)
),
held_values AS (
  SELECT
    functions.name_place, functions.platform, functions.peak_time, held.module_id, held.color,
    held.value_id, held.held_bytes, "values".shape, "values".shape_index, "values".instruction_name,
    steps.opcode, ranges.start_time, ranges.end_time,
    CAST(ranges.end_time - ranges.start_time AS DOUBLE) / nullif(functions.schedule_length, 0)
      AS lifetime_ratio,
    origins.origin_kind IS NOT NULL AS is_stack,
    coalesce(origins.is_layer_input, FALSE) AS is_layer_input,
    ("values".size_bytes + origins.slice_count - 1) // origins.slice_count AS slice_size_bytes,
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
    OR (origins.origin_kind IS NULL AND steps.is_loop_fusion) AS is_cheap,
    coalesce(origins.op_name, steps.op_name, named_uses.op_name) AS op_name
  FROM functions
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
  JOIN steps
    ON steps.module_id = "values".module_id
    AND steps.instruction_name = "values".instruction_name
  JOIN live_ranges AS ranges
    ON ranges.module_id = held.module_id
    AND ranges.value_id = held.value_id
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND origins.origin_kind = 'stacked'
  LEFT JOIN named_uses
    ON named_uses.module_id = held.module_id
    AND named_uses.value_id = held.value_id
  WHERE held.allocation_kind = 'temp'
    AND (
      -- Stacked by a loop in the forward pass of a gradient.
      origins.is_residual
      OR (
        origins.origin_kind IS NULL
        AND ranges.start_time < functions.peak_time
        AND ranges.end_time > functions.peak_time
        AND NOT "values".is_phi
      )
    )
),
use_times AS (
  SELECT
    held_values.module_id, held_values.value_id,
    max(CASE WHEN users.program_order <= held_values.peak_time THEN users.program_order END)
      AS previous_use_time,
    min(CASE WHEN users.program_order >= held_values.peak_time THEN users.program_order END)
      AS next_use_time
  FROM held_values
  JOIN uses
    ON uses.module_id = held_values.module_id
    AND uses.value_id = held_values.value_id
  JOIN steps AS users
    ON users.module_id = uses.module_id
    AND users.instruction_name = uses.instruction_name
  -- These only forward a value.
  WHERE coalesce(users.opcode, '') NOT IN (
    'add-dependency', 'bitcast', 'domain', 'get-tuple-element', 'opt-barrier', 'tuple'
  )
  GROUP BY held_values.module_id, held_values.value_id
),
operands AS (
  SELECT DISTINCT
    held_values.module_id, held_values.value_id, held_values.peak_time, uses.value_id AS operand_id
  FROM held_values
  JOIN uses
    ON uses.module_id = held_values.module_id
    AND uses.instruction_name = held_values.instruction_name
  WHERE NOT held_values.is_stack
),
kept_operands AS (
  SELECT operands.module_id, operands.value_id, sum(temp_values.size_bytes) AS kept_bytes
  FROM operands
  JOIN temp_values
    ON temp_values.module_id = operands.module_id
    AND temp_values.value_id = operands.operand_id
  WHERE temp_values.end_time < operands.peak_time
  GROUP BY operands.module_id, operands.value_id
)
SELECT
  held_values.name_place, held_values.module_id, held_values.color, held_values.value_id,
  held_values.held_bytes, held_values.shape, held_values.shape_index, held_values.instruction_name,
  held_values.opcode, held_values.peak_time, held_values.is_stack, held_values.is_layer_input,
  CASE
    WHEN held_values.is_stack THEN held_values.slice_size_bytes
    ELSE coalesce(kept_operands.kept_bytes, 0)
  END AS kept_bytes,
  -- It is unknown what jax.checkpoint around the line alone keeps instead, and the CPU compiler
  -- merges what is computed twice outside of loops.
  CASE
    WHEN held_values.is_stack THEN savings.low_saving_bytes
    WHEN savings.saving_bytes IS NOT NULL THEN 0
  END AS low_saving_bytes,
  CASE
    WHEN held_values.is_stack THEN savings.saving_bytes
    WHEN held_values.platform = 'cpu' THEN 0 * savings.saving_bytes
    ELSE savings.saving_bytes
      - least(savings.saving_bytes, coalesce(kept_operands.kept_bytes, 0))
  END AS saving_bytes,
  CAST(CASE WHEN held_values.is_stack THEN held_values.slice_size_bytes ELSE 0 END AS HUGEINT)
    AS offload_kept_bytes,
  -- CPU memory is host memory.
  CASE
    WHEN held_values.platform = 'cpu' THEN 0 * savings.saving_bytes
    WHEN held_values.is_stack
      THEN savings.saving_bytes - least(savings.saving_bytes, held_values.slice_size_bytes)
    ELSE savings.saving_bytes
  END AS offload_low_saving_bytes,
  CASE WHEN held_values.platform = 'cpu' THEN 0 * savings.saving_bytes ELSE savings.saving_bytes END
    AS offload_saving_bytes,
  held_values.is_cheap,
  is_forward(held_values.op_name)
    AND NOT regexp_matches(held_values.op_name, jax_names('recomputed'))
    AS is_forward,
  use_times.next_use_time,
  use_times.next_use_time IS NULL AND NOT held_values.is_stack AS is_late,
  CASE WHEN NOT held_values.is_stack THEN held_values.lifetime_ratio END AS lifetime_ratio,
  CASE
    WHEN NOT held_values.is_stack
      THEN coalesce(use_times.next_use_time, held_values.end_time)
        - coalesce(use_times.previous_use_time, held_values.start_time)
  END AS idle_time
FROM held_values
LEFT JOIN use_times
  ON use_times.module_id = held_values.module_id
  AND use_times.value_id = held_values.value_id
LEFT JOIN kept_operands
  ON kept_operands.module_id = held_values.module_id
  AND kept_operands.value_id = held_values.value_id
LEFT JOIN peak_savings AS savings
  ON savings.module_id = held_values.module_id
  AND savings.color = held_values.color
  AND savings.value_id = held_values.value_id
WHERE held_values.is_stack
  OR coalesce(use_times.next_use_time, held_values.end_time) > held_values.peak_time;
COMMENT ON VIEW answered_idle_values IS
  'One row per value of a temp allocation that is live but unused at the peak of a requested function (answered_functions_with_uses): it begins before, ends after, and has no use at that instant; or a loop stacked it in the forward pass of a gradient (value_origins), a slice per step. Excludes values that merge others (phi), except such stacks. Key: module_id, color, value_id.';
COMMENT ON COLUMN answered_idle_values.is_stack IS 'Whether a loop stacked it: value_origins.origin_kind.';
COMMENT ON COLUMN answered_idle_values.is_layer_input IS 'Whether it is a stack of an input of the layer: value_origins.is_layer_input.';
COMMENT ON COLUMN answered_idle_values.kept_bytes IS 'What must stay to recompute it [bytes]: one slice of a stack, with its padding; else operands in temp allocations that are not held at the peak.';
COMMENT ON COLUMN answered_idle_values.low_saving_bytes IS 'Lower bound of how far the highest peak falls if it is recomputed [bytes]: peak_savings.low_saving_bytes for a stack, else 0, because it is unknown what jax.checkpoint around the line alone keeps instead. NULL if it holds nothing there.';
COMMENT ON COLUMN answered_idle_values.saving_bytes IS 'Upper bound [bytes]: peak_savings.saving_bytes for a stack, else that minus kept_bytes, and 0 on the CPU, whose compiler merges what is computed twice. NULL where low_saving_bytes is.';
COMMENT ON COLUMN answered_idle_values.offload_kept_bytes IS 'What stays on the device if it is offloaded [bytes]: one slice of a stack, with its padding, else 0.';
COMMENT ON COLUMN answered_idle_values.offload_low_saving_bytes IS 'Lower bound of how far the highest peak falls if it is offloaded [bytes]: peak_savings.saving_bytes minus offload_kept_bytes; 0 on the CPU, whose memory is host memory. NULL if it holds nothing there.';
COMMENT ON COLUMN answered_idle_values.offload_saving_bytes IS 'Upper bound [bytes]: peak_savings.saving_bytes, because the host has all slices; 0 on the CPU. NULL where offload_low_saving_bytes is.';
COMMENT ON COLUMN answered_idle_values.is_cheap IS 'Whether the operation that makes the data (the slices of a stack) is cheap: elementwise, a data movement, or a fusion of kind kLoop, which consists of those; NULL if the opcode is unknown.';
COMMENT ON COLUMN answered_idle_values.is_forward IS 'Whether the forward pass of a gradient makes it, which jax.checkpoint recomputes: the op_name (that of named_uses if XLA made the value without one) contains jvp(, and neither transpose( (the backward pass, including what it fills or scatters early) nor rematted_computation (already recomputed). NULL if neither is known.';
COMMENT ON COLUMN answered_idle_values.next_use_time IS 'First use at or after the peak [program order]; NULL if none is known.';
COMMENT ON COLUMN answered_idle_values.is_late IS 'Whether nothing uses it after the peak: it is not a stack and has no next_use_time.';
COMMENT ON COLUMN answered_idle_values.lifetime_ratio IS 'Share of the schedule in which it is live (0 to 1); NULL for a stack.';
COMMENT ON COLUMN answered_idle_values.idle_time IS 'Length of the span around the peak without a use [program order]; NULL for a stack.';
