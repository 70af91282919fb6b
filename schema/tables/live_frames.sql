-- One row per frame of the stacks of a memory profile. Key: run_name, profile_name, stack_frame_id.
CREATE TABLE live_frames (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  stack_frame_id BIGINT NOT NULL,
  parent_frame_id BIGINT,
  own_frame_id BIGINT,
  depth BIGINT NOT NULL,
  source_file VARCHAR,
  function_name VARCHAR,
  source_line BIGINT
);
COMMENT ON TABLE live_frames IS
  'One row per frame of the stacks of a memory profile, as stack_frames has those of a module. Key: run_name, profile_name, stack_frame_id.';
COMMENT ON COLUMN live_frames.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_frames.profile_name IS
  'The profile; refers to live_profiles.profile_name of the run.';
COMMENT ON COLUMN live_frames.stack_frame_id IS
  'Number of the frame in the profile, from 1, callers first.';
COMMENT ON COLUMN live_frames.parent_frame_id IS
  'The calling frame; NULL for an outermost one.';
COMMENT ON COLUMN live_frames.own_frame_id IS
  'The innermost frame, this one or above, that is not library code (is_library_path with what the run counts as the user''s own); NULL if there is none.';
COMMENT ON COLUMN live_frames.depth IS
  'Number of frames above this one.';
COMMENT ON COLUMN live_frames.source_file IS
  'File of the frame; NULL if unknown.';
COMMENT ON COLUMN live_frames.function_name IS
  'Function of the frame; NULL if unknown.';
COMMENT ON COLUMN live_frames.source_line IS
  'Line; NULL if unknown.';
