-- f32 values at the peaks of requested functions that compute in bf16, and what bf16 would save.
CREATE OR REPLACE VIEW answered_f32_values AS
WITH held_values AS (
  SELECT
    functions.module_id, functions.color, functions.name_place, held.value_id, held.held_bytes,
    precisions.bf16_ratio,
    coalesce(origins.origin_kind = 'stacked', FALSE) AS is_stack,
    -- There the compiler converts the whole stack to f32 before it is read.
    coalesce(functions.platform = 'cpu' AND origins.origin_kind = 'stacked', FALSE) AS is_kept_wide
  FROM answered_instants AS functions
  JOIN module_precisions AS precisions
    ON precisions.module_id = functions.module_id
    AND precisions.is_own
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
    AND held.allocation_kind = 'temp'
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.dtype = 'f32'
  LEFT JOIN value_origins AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
)
SELECT
  held_values.module_id, held_values.color, held_values.name_place, held_values.value_id,
  held_values.held_bytes,
  held_values.bf16_ratio,
  held_values.is_stack, held_values.is_kept_wide,
  CASE WHEN held_values.is_kept_wide THEN 0 ELSE 1 END * savings.half_saving_bytes AS saving_bytes
FROM held_values
LEFT JOIN peak_savings AS savings
  ON savings.module_id = held_values.module_id
  AND savings.color = held_values.color
  AND savings.value_id = held_values.value_id;
COMMENT ON VIEW answered_f32_values IS
  'One row per f32 value of a temp allocation that is held at the peak of a requested function (answered_instants) whose program computes in bf16 (module_precisions.is_own). Key: module_id, color, value_id.';
COMMENT ON COLUMN answered_f32_values.is_stack IS 'Whether a loop stacked it: value_origins.origin_kind.';
COMMENT ON COLUMN answered_f32_values.is_kept_wide IS 'Whether bf16 saves nothing: a stack of a loop on the CPU, which the compiler converts to f32 as a whole before it is read.';
COMMENT ON COLUMN answered_f32_values.saving_bytes IS 'How far the highest peak falls with bf16 instead, lower and upper bound in one [bytes]: peak_savings.half_saving_bytes, 0 where is_kept_wide. NULL if it holds nothing there.';
