-- One row per stack frame, with its label in call stacks.
CREATE OR REPLACE VIEW named_frames AS
SELECT
  stack_frames.module_id, stack_frames.stack_frame_id, stack_frames.parent_frame_id,
  stack_frames.depth, stack_frames.tree_ordinal, stack_frames.last_tree_ordinal,
  NOT is_library_path(coalesce(stack_frames.source_file, ''), modules.own_pattern)
  AND (
    stack_frames.source_file IS NULL
    OR coalesce(stack_frames.own_frame_id, stack_frames.stack_frame_id)
      = stack_frames.stack_frame_id
  ) AS is_own,
  concat_ws(
    ' ',
    base_name(coalesce(stack_frames.source_file, '?')) || ':'
      || coalesce(stack_frames.source_line::VARCHAR, '?'),
    regexp_replace(stack_frames.function_name, '^.*<locals>[.]', '')
  ) AS label
FROM stack_frames
JOIN modules ON modules.module_id = stack_frames.module_id;
COMMENT ON VIEW named_frames IS
  'One row per stack frame, with its label in call stacks. The stack of a frame is the rows of its module with its tree_ordinal between their tree_ordinal and last_tree_ordinal, innermost deepest. Key: module_id, stack_frame_id.';
COMMENT ON COLUMN named_frames.is_own IS
  'Whether it is user code: not library code (is_library_path with modules.own_pattern), and not the line of another call (stack_frames.own_frame_id).';
COMMENT ON COLUMN named_frames.label IS
  'FILE:LINE FUNCTION, without directories and without the functions around a local one; ? for what is unknown.';
