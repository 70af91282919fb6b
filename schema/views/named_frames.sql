-- Stack frames as call stacks name them.
CREATE OR REPLACE VIEW named_frames AS
SELECT
  stack_frames.module_id,
  stack_frames.stack_frame_id,
  stack_frames.parent_frame_id,
  stack_frames.depth,
  stack_frames.tree_ordinal,
  stack_frames.last_tree_ordinal,
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
  'One row per stack frame, as call stacks name it. The stack of a frame are the rows of its module from whose tree_ordinal to last_tree_ordinal its tree_ordinal lies, the innermost the deepest. Key: module_id, stack_frame_id.';
COMMENT ON COLUMN named_frames.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN named_frames.stack_frame_id IS 'The frame: stack_frames.stack_frame_id.';
COMMENT ON COLUMN named_frames.parent_frame_id IS
  'The calling frame: stack_frames.parent_frame_id; NULL for an outermost one.';
COMMENT ON COLUMN named_frames.depth IS 'Number of frames above it: stack_frames.depth.';
COMMENT ON COLUMN named_frames.tree_ordinal IS
  'Place before the frames that it calls: stack_frames.tree_ordinal.';
COMMENT ON COLUMN named_frames.last_tree_ordinal IS
  'Place of the last frame that it calls: stack_frames.last_tree_ordinal.';
COMMENT ON COLUMN named_frames.is_own IS
  'Whether it is not library code (is_library_path with modules.own_pattern), and not the line of another call (stack_frames.own_frame_id).';
COMMENT ON COLUMN named_frames.label IS
  'FILE:LINE FUNCTION, without directories and without the outer functions of a local one; ? for what is unknown.';
