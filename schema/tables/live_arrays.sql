-- One row per memory profile, device and stack of Python that made arrays that are alive. Key: run_name, profile_name, device, stack_frame_id.
CREATE TABLE live_arrays (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  device VARCHAR NOT NULL,
  stack_frame_id BIGINT,
  total_bytes BIGINT NOT NULL,
  array_count BIGINT NOT NULL,
  argument_bytes BIGINT,
  argument_count BIGINT
);
COMMENT ON TABLE live_arrays IS
  'One row per memory profile, device and stack of Python that made arrays that are alive. Sums are those of jax.live_arrays(), each buffer counted once. Key: run_name, profile_name, device, stack_frame_id.';
COMMENT ON COLUMN live_arrays.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_arrays.profile_name IS
  'The profile; refers to live_profiles.profile_name of the run.';
COMMENT ON COLUMN live_arrays.device IS
  'The device as JAX prints it, such as cuda:0.';
COMMENT ON COLUMN live_arrays.stack_frame_id IS
  'Innermost frame of the stack; refers to live_frames.stack_frame_id of the profile. NULL if JAX has no stack for it.';
COMMENT ON COLUMN live_arrays.total_bytes IS
  'Bytes of these arrays on the device [bytes].';
COMMENT ON COLUMN live_arrays.array_count IS
  'Number of these arrays; one array has a part on each of its devices.';
COMMENT ON COLUMN live_arrays.argument_bytes IS
  'Bytes of those that were arguments of the failed program, by identity at the call [bytes]; the others are bystanders. NULL if that is not known (live_profiles.arguments_unknown_reason).';
COMMENT ON COLUMN live_arrays.argument_count IS
  'Number of those that were arguments; NULL if that is not known.';
