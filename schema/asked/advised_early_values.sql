-- Results of one instruction that all wait across the peak for their first use.
CREATE OR REPLACE VIEW advised_early_values AS
WITH functions AS (
  SELECT module_id, color, peak_time, schedule_length
  FROM answered_functions_with_uses
  WHERE module_id IS NOT NULL
),
results AS (
  SELECT
    functions.module_id, functions.color, functions.peak_time, functions.schedule_length,
    held.value_id, "values".instruction_name, ranges.start_time
  FROM functions
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
    AND held.allocation_kind = 'temp'
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
    AND NOT "values".is_phi
  JOIN live_ranges AS ranges
    ON ranges.module_id = held.module_id
    AND ranges.value_id = held.value_id
    AND ranges.start_time < functions.peak_time
),
first_uses AS (
  SELECT results.module_id, results.value_id, min(users.program_order) AS use_time
  FROM results
  JOIN uses
    ON uses.module_id = results.module_id
    AND uses.value_id = results.value_id
  JOIN instructions AS users
    ON users.module_id = uses.module_id
    AND users.instruction_name = uses.instruction_name
    AND users.program_order > results.start_time
  -- These only forward a value.
  WHERE coalesce(users.opcode, '') NOT IN (
    'add-dependency', 'bitcast', 'domain', 'get-tuple-element', 'opt-barrier', 'tuple'
  )
  GROUP BY results.module_id, results.value_id
),
waiting AS (
  SELECT
    results.module_id, results.color, results.value_id, results.instruction_name,
    count(*) OVER (
      PARTITION BY results.module_id, results.color, results.instruction_name
    ) AS value_count
  FROM results
  JOIN first_uses
    ON first_uses.module_id = results.module_id
    AND first_uses.value_id = results.value_id
    AND first_uses.use_time > results.peak_time
    AND first_uses.use_time - results.start_time >= 0.1 * results.schedule_length
)
SELECT module_id, color, value_id, instruction_name
FROM waiting
WHERE value_count > 1;
COMMENT ON VIEW advised_early_values IS
  'One row per value of a temp allocation that its instruction makes long before it is used, together with others: it waits across the peak for its first use, for at least a tenth of the schedule, and so does another result of the instruction. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_early_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_early_values.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_early_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_early_values.instruction_name IS 'The instruction that makes it and the others.';
