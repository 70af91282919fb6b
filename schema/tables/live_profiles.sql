-- One row per memory profile of a run: a process at one moment. Key: run_name, profile_name.
CREATE TABLE live_profiles (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  moment VARCHAR CHECK (moment IN ('failure', 'end', 'snapshot')),
  elapsed_seconds DOUBLE,
  mark VARCHAR,
  snapshot_ordinal BIGINT,
  failed_program_name VARCHAR,
  failure_message VARCHAR,
  requested_bytes BIGINT,
  limit_bytes BIGINT,
  code_bytes BIGINT,
  program_count BIGINT NOT NULL,
  arguments_unknown_reason VARCHAR,
  shapes_unknown_reason VARCHAR
);
COMMENT ON TABLE live_profiles IS
  'One row per memory profile of a run: what a process held at one moment, as jax.profiler.save_device_memory_profile or bufdb.watch wrote it. Key: run_name, profile_name.';
COMMENT ON COLUMN live_profiles.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_profiles.profile_name IS
  'Path of the file below the ingested directory; the name of a file that was ingested by itself. A file of the same name replaces it.';
COMMENT ON COLUMN live_profiles.moment IS
  'failure: when the device ran out of memory; end: at the end of the watched block or program; snapshot: while it ran. NULL: the profile was written by the program itself.';
COMMENT ON COLUMN live_profiles.elapsed_seconds IS
  'Time since the process began to be watched [s]; NULL if the program wrote the profile itself.';
COMMENT ON COLUMN live_profiles.mark IS
  'Text that the program gave the snapshot, such as step 100; NULL for others.';
COMMENT ON COLUMN live_profiles.snapshot_ordinal IS
  'Number of the snapshot among those that the process took, from 0: only some are kept. NULL for other moments.';
COMMENT ON COLUMN live_profiles.failed_program_name IS
  'The compiled program whose call failed, such as jit_step; NULL if none did, or it is not known.';
COMMENT ON COLUMN live_profiles.failure_message IS
  'First line of the error; NULL if nothing failed.';
COMMENT ON COLUMN live_profiles.requested_bytes IS
  'Bytes that the error says could not be allocated [bytes]; NULL if it does not say.';
COMMENT ON COLUMN live_profiles.limit_bytes IS
  'Memory of the device as given to bufdb.watch [bytes]; NULL if none was given.';
COMMENT ON COLUMN live_profiles.code_bytes IS
  'Code of the loaded programs in device memory [bytes]; 0 on CPU, where JAX does not count it; NULL if the runtime does not know the size of each program, as on TPU (-1 in the profile).';
COMMENT ON COLUMN live_profiles.program_count IS
  'Number of loaded programs, by the list of bufdb.watch where it is whole (live_programs), else by the profile; one of a CPU counts none.';
COMMENT ON COLUMN live_profiles.arguments_unknown_reason IS
  'Why it is not known which arrays were arguments of the failed program; NULL if it is known (live_arrays.argument_bytes).';
COMMENT ON COLUMN live_profiles.shapes_unknown_reason IS
  'Why the shape of some arrays is not known; NULL if all are (live_arrays.shape).';
