-- One row per value that holds what an all-gather made, also where it was moved since.
CREATE OR REPLACE VIEW gathered_values AS
WITH results AS (
  SELECT "values".module_id, "values".value_id
  FROM instructions
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  WHERE instructions.opcode IN ('all-gather', 'all-gather-start', 'all-gather-done')
)
SELECT results.module_id, results.value_id, results.value_id AS result_value_id
FROM results
UNION ALL
SELECT moved_values.module_id, moved_values.value_id, results.value_id AS result_value_id
FROM results
JOIN moved_values
  ON moved_values.module_id = results.module_id
  AND moved_values.source_value_id = results.value_id;
COMMENT ON VIEW gathered_values IS
  'One row per value that holds what an all-gather made: its results, and those moved to another memory space (moved_values). Key: module_id, value_id.';
COMMENT ON COLUMN gathered_values.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN gathered_values.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN gathered_values.result_value_id IS 'The result of the all-gather: itself where it was not moved.';
