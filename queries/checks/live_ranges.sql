-- title: Live ranges are in the schedule and begin at their instruction
-- group: store
--
-- Format section 8, rule 8. A parameter of any computation is live from the start of that
-- computation, which is not after its own place; if the opcode is unknown (before jaxlib 0.1.72),
-- the beginning is not checked.
--
-- The computation that an asynchronous operation wraps is in the schedule right before the
-- operation's start (or update, if that completes its operands). Its values live at least to the
-- operation's end, and from their own place; in jaxlib 0.12.0 (GPU) and libtpu 0.0.52 from the
-- place of the operation's start, and in newer XLA from the start of the computation around it: 0,
-- or where the first of its parameters is live. copy-start wraps nothing.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH misplaced AS (
  SELECT
    live_ranges.module_id, live_ranges.instruction_name, live_ranges.shape_index,
    live_ranges.start_time, live_ranges.end_time, instructions.program_order, instructions.opcode,
    modules.schedule_length,
    live_ranges.start_time < 0
      OR live_ranges.end_time < live_ranges.start_time
      OR live_ranges.end_time > modules.schedule_length AS is_outside
  FROM live_ranges
  JOIN modules ON modules.module_id = live_ranges.module_id
  LEFT JOIN instructions
    ON instructions.module_id = live_ranges.module_id
    AND instructions.instruction_name = live_ranges.instruction_name
  WHERE live_ranges.start_time < 0
    OR live_ranges.end_time < live_ranges.start_time
    OR live_ranges.end_time > modules.schedule_length
    OR CASE instructions.opcode
      WHEN 'parameter' THEN live_ranges.start_time > instructions.program_order
      ELSE instructions.program_order IS DISTINCT FROM live_ranges.start_time
    END AND instructions.opcode IS NOT NULL
),
-- The place of the first asynchronous start after each of them.
wrapped AS (
  SELECT
    misplaced.module_id, misplaced.instruction_name, misplaced.shape_index,
    min(starts.program_order) AS next_start,
    bool_or(starts.program_order = misplaced.start_time) AS begins_at_start
  FROM misplaced
  JOIN instructions AS starts
    ON starts.module_id = misplaced.module_id
    AND starts.program_order > misplaced.program_order
  WHERE (ends_with(starts.opcode, '-start') OR ends_with(starts.opcode, '-update'))
    AND starts.opcode <> 'copy-start'
  GROUP BY misplaced.module_id, misplaced.instruction_name, misplaced.shape_index
),
computation_starts AS (
  SELECT DISTINCT live_ranges.module_id, live_ranges.start_time
  FROM live_ranges
  JOIN instructions
    ON instructions.module_id = live_ranges.module_id
    AND instructions.instruction_name = live_ranges.instruction_name
  WHERE instructions.opcode = 'parameter'
)
SELECT
  misplaced.module_id,
  misplaced.instruction_name || misplaced.shape_index || ': live ' || misplaced.start_time
    || '-' || misplaced.end_time || ', scheduled at '
    || coalesce(misplaced.program_order::VARCHAR, 'no place') || ' of '
    || coalesce(misplaced.schedule_length::VARCHAR, 'no schedule') AS finding
FROM misplaced
LEFT JOIN wrapped
  ON wrapped.module_id = misplaced.module_id
  AND wrapped.instruction_name = misplaced.instruction_name
  AND wrapped.shape_index = misplaced.shape_index
LEFT JOIN computation_starts
  ON computation_starts.module_id = misplaced.module_id
  AND computation_starts.start_time = misplaced.start_time
WHERE misplaced.is_outside
  OR NOT coalesce(
    misplaced.end_time > wrapped.next_start
    AND (
      wrapped.begins_at_start
      OR (
        misplaced.start_time < misplaced.program_order
        AND (misplaced.start_time = 0 OR computation_starts.start_time IS NOT NULL)
      )
    ),
    FALSE
  )
ORDER BY misplaced.module_id, misplaced.instruction_name, misplaced.shape_index;
