-- One row per value that holds the result of an all-gather, moved or not.
CREATE OR REPLACE VIEW gathered_values AS
WITH results AS (
  SELECT "values".module_id, "values".value_id
  FROM instructions
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  WHERE instructions.opcode IN ('all-gather', 'all-gather-start', 'all-gather-done')
),
found AS (
  SELECT results.module_id, results.value_id, results.value_id AS result_value_id
  FROM results
  UNION ALL
  SELECT moved_values.module_id, moved_values.value_id, results.value_id AS result_value_id
  FROM results
  JOIN moved_values
    ON moved_values.module_id = results.module_id
    AND moved_values.source_value_id = results.value_id
),
held AS (
  SELECT
    found.module_id, found.value_id, savings.held_bytes, savings.saving_bytes,
    count(*) OVER (PARTITION BY savings.module_id, savings.color) AS gather_count
  FROM found
  JOIN peak_savings AS savings
    ON savings.module_id = found.module_id
    AND savings.value_id = found.value_id
)
SELECT
  found.module_id, found.value_id, found.result_value_id,
  CASE WHEN held.gather_count > 1 THEN 1 ELSE 0 END * held.saving_bytes AS low_saving_bytes,
  CASE WHEN held.gather_count > 1 THEN held.held_bytes ELSE held.saving_bytes END AS saving_bytes
FROM found
LEFT JOIN held
  ON held.module_id = found.module_id
  AND held.value_id = found.value_id;
COMMENT ON VIEW gathered_values IS
  'One row per value that holds the result of an all-gather, or a copy of it in another memory space (moved_values). Key: module_id, value_id.';
COMMENT ON COLUMN gathered_values.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN gathered_values.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN gathered_values.result_value_id IS 'The result of the all-gather: itself where it was not moved.';
COMMENT ON COLUMN gathered_values.low_saving_bytes IS 'Lower bound of how far the highest peak falls without it [bytes]: peak_savings.saving_bytes; 0 for the only one at the peak of the memory space, because one is needed at some instant. NULL if it holds nothing there.';
COMMENT ON COLUMN gathered_values.saving_bytes IS 'Upper bound [bytes]: what it holds there, because the one that is needed may use bytes that others leave free; for the only one, peak_savings.saving_bytes. NULL where low_saving_bytes is.';
