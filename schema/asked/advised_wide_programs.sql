-- Requested functions that compute in f32: bf16 halves everything they hold.
CREATE OR REPLACE VIEW advised_wide_programs AS
SELECT
  functions.module_id, functions.color,
  count(*) AS value_count,
  sum(
    CASE
      WHEN held.allocation_kind = 'temp' OR NOT trained.is_trained THEN held.held_bytes
      ELSE 0
    END
  ) // 4 AS low_saving_bytes,
  sum(held.held_bytes) // 2 AS saving_bytes
FROM answered_functions AS functions
JOIN module_precisions AS precisions
  ON precisions.module_id = functions.module_id
  AND NOT precisions.is_own
  AND precisions.is_wide
JOIN (
  SELECT
    instructions.module_id,
    max(CASE WHEN is_backward(instructions.op_name) THEN 1 ELSE 0 END) = 1 AS is_trained
  FROM instructions
  GROUP BY instructions.module_id
) AS trained
  ON trained.module_id = functions.module_id
JOIN asked_peak_values AS held
  ON held.module_id = functions.module_id
  AND held.color = functions.color
  AND held.allocation_kind IN ('temp', 'parameter', 'donated_parameter', 'output')
JOIN value_details
  ON value_details.module_id = held.module_id
  AND value_details.value_id = held.value_id
  AND value_details.dtype = 'f32'
-- The CPU computes bf16 in f32.
WHERE functions.platform <> 'cpu'
GROUP BY functions.module_id, functions.color;
COMMENT ON VIEW advised_wide_programs IS
  'One row per requested function (answered_functions) whose program is entirely in f32 (module_precisions.is_wide, not is_own), with what bf16 would save of the f32 values that it holds at the peak; none on CPU, which computes bf16 in f32. Key: module_id, color.';
COMMENT ON COLUMN advised_wide_programs.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_wide_programs.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_wide_programs.value_count IS 'f32 values that hold bytes at the peak.';
COMMENT ON COLUMN advised_wide_programs.low_saving_bytes IS 'Lower bound of how far the peak falls [bytes]: a quarter of them, in a program that takes a gradient without arguments and outputs, whose weights may stay f32.';
COMMENT ON COLUMN advised_wide_programs.saving_bytes IS 'Upper bound [bytes]: half of them.';
