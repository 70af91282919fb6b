-- title: The schedule has as many instructions as it says, each once
-- group: store
--
-- Format section 8, rule 8.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH schedules AS (
  SELECT
    instructions.module_id,
    count(*) AS instruction_count,
    count(DISTINCT instructions.program_order) AS place_count,
    min(instructions.program_order) AS first_place,
    max(instructions.program_order) AS last_place
  FROM instructions
  WHERE instructions.program_order IS NOT NULL
  GROUP BY instructions.module_id
)
SELECT
  modules.module_id,
  'expected ' || coalesce(modules.schedule_length, 0) || ' instructions, found '
    || coalesce(schedules.instruction_count, 0) || ' at ' || coalesce(schedules.place_count, 0)
    || ' places' AS finding
FROM modules
LEFT JOIN schedules ON schedules.module_id = modules.module_id
WHERE coalesce(modules.schedule_length, 0) <> coalesce(schedules.instruction_count, 0)
  OR coalesce(modules.schedule_length, 0) <> coalesce(schedules.place_count, 0)
  OR schedules.first_place <> 0
  OR schedules.last_place <> modules.schedule_length - 1
ORDER BY modules.module_id;
