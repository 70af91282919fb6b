-- title: A range in a source file ends where it begins or later
-- group: store
--
-- Format section 7.1: first line and column, last line and column, of instructions and of frames.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH places AS (
  SELECT
    instructions.module_id,
    'instruction ' || instructions.instruction_name AS what,
    instructions.source_line, instructions.source_column, instructions.source_end_line,
    instructions.source_end_column
  FROM instructions
  UNION ALL
  SELECT
    stack_frames.module_id,
    'stack frame ' || stack_frames.stack_frame_id AS what,
    stack_frames.source_line, stack_frames.source_column, stack_frames.source_end_line,
    stack_frames.source_end_column
  FROM stack_frames
)
SELECT
  places.module_id,
  places.what || ': line ' || places.source_line || ' to ' || places.source_end_line || ', column '
    || coalesce(places.source_column::VARCHAR, 'unknown') || ' to '
    || coalesce(places.source_end_column::VARCHAR, 'unknown') AS finding
FROM places
WHERE places.source_end_line > 0
  AND (
    places.source_line > places.source_end_line
    OR (
      places.source_line = places.source_end_line
      AND places.source_end_column > 0
      AND places.source_column > places.source_end_column
    )
  )
ORDER BY places.module_id, finding;
