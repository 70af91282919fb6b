-- title: A value is in the memory space of its allocation
-- group: store
--
-- Format section 8, rule 12, except temps of a GPU with a memory space of their own. An array's
-- layout has the value's memory space.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  "values".module_id,
  'value ' || "values".value_id || ' in memory space ' || "values".color || ', its allocation in '
    || allocations.color || ', its layout in ' || coalesce(shapes.memory_space::VARCHAR, 'none')
    AS finding
FROM "values"
JOIN modules ON modules.module_id = "values".module_id
JOIN allocations
  ON allocations.module_id = "values".module_id
  AND allocations.allocation_index = "values".allocation_index
JOIN shapes ON shapes.shape = "values".shape
WHERE (
    "values".color <> allocations.color
    AND NOT (allocations.kind = 'temp' AND modules.platform IS NOT DISTINCT FROM 'gpu')
  )
  OR "values".color <> shapes.memory_space
ORDER BY "values".module_id, "values".value_id;
