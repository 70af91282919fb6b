-- title: Values made by XLA are for the instruction that their uses lead to
-- group: store
--
-- value_users is computed when a module is stored; here it is computed again, use by use, from
-- values, live_ranges, peak_values, uses and instructions.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH RECURSIVE definers AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.op_name,
    instructions.program_order,
    min("values".value_id) AS first_value_id
  FROM instructions
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  GROUP BY
    instructions.module_id, instructions.instruction_name, instructions.op_name,
    instructions.program_order
),
nameless AS (
  SELECT peak_values.module_id, peak_values.value_id
  FROM peak_values
  WHERE peak_values.allocation_kind = 'output'
    AND peak_values.value_id IS NOT NULL
  UNION
  SELECT "values".module_id, "values".value_id
  FROM "values"
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  WHERE allocations.kind = 'temp'
    AND "values".size_bytes > 0
    AND live_ranges.start_time <= live_ranges.end_time
    AND "values".module_id IN (SELECT occupied_peaks.module_id FROM occupied_peaks)
),
walks AS (
  SELECT
    nameless.module_id, nameless.value_id, definers.instruction_name, definers.op_name,
    definers.first_value_id,
    0 AS step_count
  FROM nameless
  JOIN "values"
    ON "values".module_id = nameless.module_id
    AND "values".value_id = nameless.value_id
  JOIN definers
    ON definers.module_id = "values".module_id
    AND definers.instruction_name = "values".instruction_name
  WHERE definers.op_name IS NULL
  UNION ALL
  (
    SELECT
      walks.module_id, walks.value_id, definers.instruction_name, definers.op_name,
      definers.first_value_id,
      walks.step_count + 1 AS step_count
    FROM walks
    JOIN "values"
      ON "values".module_id = walks.module_id
      AND "values".instruction_name = walks.instruction_name
      AND (walks.step_count > 0 OR "values".value_id = walks.value_id)
    JOIN uses
      ON uses.module_id = "values".module_id
      AND uses.value_id = "values".value_id
    JOIN definers
      ON definers.module_id = uses.module_id
      AND definers.instruction_name = uses.instruction_name
    WHERE walks.op_name IS NULL
      AND walks.step_count < 8
      -- Uses inside a fused or called computation are listed with that of the caller; they have no
      -- place in program order.
      AND definers.program_order IS NOT NULL
    QUALIFY row_number() OVER (
      PARTITION BY walks.module_id, walks.value_id
      ORDER BY
        definers.op_name IS NULL, definers.program_order, definers.instruction_name
    ) = 1
  )
),
expected AS (
  SELECT
    walks.module_id, walks.value_id, walks.first_value_id AS user_value_id,
    walks.step_count::BIGINT AS step_count
  FROM walks
  WHERE walks.op_name IS NOT NULL
)
SELECT
  odd.module_id,
  odd.what || ' value ' || odd.value_id || ' for value ' || odd.user_value_id || ' in '
    || odd.step_count || ' steps' AS finding
FROM (
  SELECT different.*, 'stored:' AS what
  FROM (FROM value_users EXCEPT ALL FROM expected) AS different
  UNION ALL
  SELECT different.*, 'not stored:' AS what
  FROM (FROM expected EXCEPT ALL FROM value_users) AS different
) AS odd
ORDER BY odd.module_id, finding;
