-- One row per frame of a module's stack-frame table (HLO text, from jaxlib 0.8.2). Key: module_id, stack_frame_id.
CREATE TABLE stack_frames (
  module_id BIGINT NOT NULL,
  stack_frame_id BIGINT NOT NULL,
  parent_frame_id BIGINT,
  own_frame_id BIGINT,
  depth BIGINT NOT NULL,
  tree_ordinal BIGINT NOT NULL,
  last_tree_ordinal BIGINT NOT NULL,
  source_file VARCHAR,
  function_name VARCHAR,
  source_line BIGINT,
  source_end_line BIGINT,
  source_column BIGINT,
  source_end_column BIGINT
);
COMMENT ON TABLE stack_frames IS
  'One row per frame of a module''s stack-frame table (HLO text, from jaxlib 0.8.2). Key: module_id, stack_frame_id.';
COMMENT ON COLUMN stack_frames.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN stack_frames.stack_frame_id IS
  'Number in the list "StackFrames", from 1.';
COMMENT ON COLUMN stack_frames.parent_frame_id IS
  'The calling frame; NULL for an outermost one. The text prints this number one too high; here it is corrected.';
COMMENT ON COLUMN stack_frames.own_frame_id IS
  'The innermost frame, this one or above, that is not library code (is_library_path with modules.own_pattern); for a helper such as jax.nn.relu whose trace JAX cached for another line of the same function, the frame of its call. NULL if there is none.';
COMMENT ON COLUMN stack_frames.depth IS
  'Number of frames above this one.';
COMMENT ON COLUMN stack_frames.tree_ordinal IS
  'Preorder number among the module''s frames, from 0: a frame comes before those it calls. Its callers are the frames with this number between their tree_ordinal and last_tree_ordinal (view named_frames).';
COMMENT ON COLUMN stack_frames.last_tree_ordinal IS
  'tree_ordinal of the last frame that it calls, directly or indirectly; its own if it calls none.';
COMMENT ON COLUMN stack_frames.source_file IS
  'File of the frame, unescaped; NULL if the dump''s tables do not have it.';
COMMENT ON COLUMN stack_frames.function_name IS
  'Function of the frame, unescaped; NULL if the dump''s tables do not have it.';
COMMENT ON COLUMN stack_frames.source_line IS
  'Line; NULL if the dump''s tables do not have it.';
COMMENT ON COLUMN stack_frames.source_end_line IS
  'Last line; NULL if the dump''s tables do not have it.';
COMMENT ON COLUMN stack_frames.source_column IS
  'First column; NULL if the dump''s tables do not have it.';
COMMENT ON COLUMN stack_frames.source_end_column IS
  'Last column; NULL if the dump''s tables do not have it.';
