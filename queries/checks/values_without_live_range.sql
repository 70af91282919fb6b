-- title: Only values of thread-local computations have no live range
-- group: store
--
-- Format section 8, rule 9: values in thread-local allocations have none, and neither do the
-- constants of such computations, whose instructions are not scheduled.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  "values".module_id,
  'value ' || "values".value_id || ' (' || allocations.kind || ') has '
    || CASE WHEN live_ranges.value_id IS NULL THEN 'no' ELSE 'a' END || ' live range' AS finding
FROM "values"
JOIN modules ON modules.module_id = "values".module_id
JOIN allocations
  ON allocations.module_id = "values".module_id
  AND allocations.allocation_index = "values".allocation_index
LEFT JOIN instructions
  ON instructions.module_id = "values".module_id
  AND instructions.instruction_name = "values".instruction_name
LEFT JOIN live_ranges
  ON live_ranges.module_id = "values".module_id
  AND live_ranges.value_id = "values".value_id
WHERE modules.has_live_ranges
  AND CASE
    WHEN live_ranges.value_id IS NOT NULL THEN allocations.kind = 'thread_local'
    WHEN allocations.kind = 'constant' THEN instructions.program_order IS NOT NULL
    ELSE allocations.kind <> 'thread_local'
  END
ORDER BY "values".module_id, "values".value_id;
