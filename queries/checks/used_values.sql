-- title: Used values are the assigned values, each defined at its first position
-- group: store
--
-- Format section 8, rule 3, and section 5: the first position has the value's own name and index.
-- The readers rely on equal texts in both places.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  "values".module_id,
  'value ' || "values".value_id || ' (' || "values".instruction_name || "values".shape_index
    || '): ' || coalesce(
    'first seen at ' || positions.instruction_name || positions.shape_index,
    'not among the used values'
  ) AS finding
FROM "values"
JOIN modules ON modules.module_id = "values".module_id
LEFT JOIN positions
  ON positions.module_id = "values".module_id
  AND positions.value_id = "values".value_id
  AND positions.position_ordinal = 0
WHERE modules.has_used_values
  AND (
    positions.value_id IS NULL
    OR NOT positions.is_defining
    OR positions.instruction_name <> "values".instruction_name
    OR positions.shape_index <> "values".shape_index
  )
ORDER BY "values".module_id, "values".value_id;
