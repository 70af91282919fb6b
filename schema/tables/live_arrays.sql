-- One row per memory profile, device, stack of Python that made arrays that are alive, and their shape. Key: run_name, profile_name, device, stack_frame_id, shape.
CREATE TABLE live_arrays (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  device VARCHAR NOT NULL,
  stack_frame_id BIGINT,
  source VARCHAR,
  python_function_name VARCHAR,
  shape VARCHAR,
  total_bytes BIGINT NOT NULL,
  array_count BIGINT NOT NULL,
  argument_bytes BIGINT,
  argument_count BIGINT,
  holder_name VARCHAR,
  holder_source VARCHAR
);
COMMENT ON TABLE live_arrays IS
  'One row per memory profile, device, stack of Python that made arrays that are alive, and their shape. Sums are those of jax.live_arrays(), each buffer counted once. Key: run_name, profile_name, device, stack_frame_id, shape.';
COMMENT ON COLUMN live_arrays.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_arrays.profile_name IS
  'The profile; refers to live_profiles.profile_name of the run.';
COMMENT ON COLUMN live_arrays.device IS
  'The device as JAX prints it, such as cuda:0.';
COMMENT ON COLUMN live_arrays.stack_frame_id IS
  'Innermost frame of the stack; refers to live_frames.stack_frame_id of the profile. NULL if JAX has no stack for it.';
COMMENT ON COLUMN live_arrays.source IS
  'Line of Python that made them, as FILE:LINE: that of the innermost frame that is not library code (live_frames.own_frame_id); "library FILE:LINE" of the innermost one where all are library code. Stored with each row, since a job has a hundred times as many frames. NULL if there is no stack, or its line is unknown.';
COMMENT ON COLUMN live_arrays.python_function_name IS
  'Function of that frame; NULL if unknown.';
COMMENT ON COLUMN live_arrays.shape IS
  'Type and dimensions of these arrays on the device, such as f32[256,512]: those of a shard if it is divided. NULL for arrays whose shape is not known (live_profiles.shapes_unknown_reason).';
COMMENT ON COLUMN live_arrays.total_bytes IS
  'Bytes of these arrays on the device [bytes].';
COMMENT ON COLUMN live_arrays.array_count IS
  'Number of these arrays; one array has a part on each of its devices.';
COMMENT ON COLUMN live_arrays.argument_bytes IS
  'Bytes of those that were arguments of the failed program, by identity at the call [bytes]; the others are bystanders. NULL if that is not known (live_profiles.arguments_unknown_reason).';
COMMENT ON COLUMN live_arrays.argument_count IS
  'Number of those that were arguments; NULL if that is not known.';
COMMENT ON COLUMN live_arrays.holder_name IS
  'Variable that holds most of a sample of these arrays, such as history, by the referrers of Python''s garbage collector. NULL if it was not searched for (--watch-holders), or not found.';
COMMENT ON COLUMN live_arrays.holder_source IS
  'File and line that first assign that variable; NULL if that is not known.';
