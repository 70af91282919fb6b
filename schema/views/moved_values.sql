-- One row per value and value of another memory space that it is a copy of.
CREATE OR REPLACE VIEW moved_values AS
WITH moves AS (
  SELECT copy_details.module_id, copy_details.value_id, copy_details.source_value_id
  FROM copy_details
  WHERE copy_details.source_value_id IS NOT NULL
    AND (copy_details.opcode = 'copy-start' OR copy_details.color <> copy_details.source_color)
)
SELECT moves.module_id, moves.value_id, moves.source_value_id
FROM moves
UNION ALL
SELECT moves.module_id, again.value_id, moves.source_value_id
FROM moves
JOIN moves AS again
  ON again.module_id = moves.module_id
  AND again.source_value_id = moves.value_id;
COMMENT ON VIEW moved_values IS
  'One row per value made by a copy-start or a copy to another memory space, and value with the same array: its source, and the source of that (to the fast memory of a TPU and back). Key: module_id, value_id, source_value_id.';
COMMENT ON COLUMN moved_values.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN moved_values.value_id IS 'The copy: copy_details.value_id.';
COMMENT ON COLUMN moved_values.source_value_id IS 'Source of the copy, one or two moves before: copy_details.source_value_id.';
