-- title: Live ranges lie in the schedule and begin at their instruction
-- group: overview
--
-- Format section 8, rule 8. A parameter of any computation is live from the start of that
-- computation; where the opcode is not known (before jaxlib 0.1.72), the beginning is not checked.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  live_ranges.module_id,
  live_ranges.instruction_name || live_ranges.shape_index || ': live ' || live_ranges.start_time
    || '-' || live_ranges.end_time || ', scheduled at '
    || coalesce(instructions.program_order::VARCHAR, 'no place') || ' of '
    || modules.schedule_length AS finding
FROM live_ranges
JOIN modules ON modules.module_id = live_ranges.module_id
LEFT JOIN instructions
  ON instructions.module_id = live_ranges.module_id
  AND instructions.instruction_name = live_ranges.instruction_name
WHERE live_ranges.start_time < 0
  OR live_ranges.end_time < live_ranges.start_time
  OR live_ranges.end_time > modules.schedule_length
  OR (
    instructions.opcode <> 'parameter'
    AND instructions.program_order IS DISTINCT FROM live_ranges.start_time
  )
ORDER BY live_ranges.module_id, live_ranges.instruction_name, live_ranges.shape_index;
