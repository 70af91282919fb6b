-- The arrays that collective operations read and write.
CREATE OR REPLACE VIEW collective_values AS
WITH written AS (
  SELECT DISTINCT
    collectives.module_id, collectives.instruction_name, "values".value_id
  FROM collectives
  JOIN positions
    ON positions.module_id = collectives.module_id
    AND positions.instruction_name = collectives.instruction_name
  JOIN "values"
    ON "values".module_id = positions.module_id
    AND "values".value_id = positions.value_id
  WHERE "values".shape NOT LIKE '(%'
    AND (
      NOT collectives.has_operands_in_shape
      OR positions.shape_index = '{1}'
      OR starts_with(positions.shape_index, '{1,')
    )
),
results AS (
  SELECT written.module_id, written.instruction_name, written.value_id, FALSE AS is_moved
  FROM written
  UNION ALL
  SELECT written.module_id, written.instruction_name, moved_values.value_id, TRUE AS is_moved
  FROM written
  JOIN moved_values
    ON moved_values.module_id = written.module_id
    AND moved_values.source_value_id = written.value_id
)
SELECT
  results.module_id, results.instruction_name, results.value_id,
  TRUE AS is_written,
  results.is_moved
FROM results
UNION ALL
SELECT DISTINCT
  collectives.module_id, collectives.instruction_name, "values".value_id,
  FALSE AS is_written,
  FALSE AS is_moved
FROM collectives
JOIN uses
  ON uses.module_id = collectives.module_id
  AND uses.instruction_name = collectives.instruction_name
JOIN "values"
  ON "values".module_id = uses.module_id
  AND "values".value_id = uses.value_id
WHERE "values".shape NOT LIKE '(%';
COMMENT ON VIEW collective_values IS
  'One row per array that a collective operation reads or writes, including results that were later moved to another memory space. Key: module_id, instruction_name, value_id, is_written.';
COMMENT ON COLUMN collective_values.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN collective_values.instruction_name IS 'The operation: collectives.instruction_name.';
COMMENT ON COLUMN collective_values.value_id IS 'The array: values.value_id.';
COMMENT ON COLUMN collective_values.is_written IS 'Whether it is a result (positions; for a start, those of its chain), else an operand (uses).';
COMMENT ON COLUMN collective_values.is_moved IS 'Whether it is a copy of a result in another memory space (moved_values).';
