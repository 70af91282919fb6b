-- title: A value has the shape of its instruction
-- group: store
--
-- Format section 8, rule 7. An index below {} needs a tuple, and the shape at it must occur in the
-- tuple's text.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  "values".module_id,
  'value ' || "values".value_id || ': ' || "values".shape || ' at ' || "values".shape_index
    || ' of ' || left(instructions.shape, 80) AS finding
FROM "values"
JOIN instructions
  ON instructions.module_id = "values".module_id
  AND instructions.instruction_name = "values".instruction_name
WHERE CASE "values".shape_index
    WHEN '{}' THEN "values".shape <> instructions.shape
    ELSE NOT starts_with(instructions.shape, '(')
      -- Comments in a nested tuple are numbered from its own start.
      OR (
        NOT contains("values".shape, '/*')
        AND NOT contains(instructions.shape, "values".shape)
      )
  END
ORDER BY "values".module_id, "values".value_id;
