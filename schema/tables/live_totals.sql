-- One row per memory profile, or log with a report of an allocator: what its process holds in all. Key: run_name, profile_name.
CREATE TABLE live_totals (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  total_bytes BIGINT,
  array_count BIGINT,
  fullest_bytes BIGINT,
  program_bytes BIGINT,
  used_bytes BIGINT,
  most_used_bytes BIGINT,
  pool_bytes BIGINT,
  block_bytes BIGINT
);
COMMENT ON TABLE live_totals IS
  'One row per memory profile, or log with a report of an allocator: what its process holds in all, so that questions about many processes need not read their arrays. Computed from live_arrays, live_programs and allocator_statistics (derived_live_totals). Key: run_name, profile_name.';
COMMENT ON COLUMN live_totals.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN live_totals.profile_name IS
  'The profile or log: live_profiles.profile_name or allocator_statistics.profile_name of the run.';
COMMENT ON COLUMN live_totals.total_bytes IS
  'Sum of live_arrays.total_bytes over all devices [bytes]; 0 if no array is alive. NULL for a log without a profile.';
COMMENT ON COLUMN live_totals.array_count IS
  'Sum of live_arrays.array_count over all devices: an array counts once on each of its devices. NULL for a log without a profile.';
COMMENT ON COLUMN live_totals.fullest_bytes IS
  'Sum of live_arrays.total_bytes on the device with the most [bytes]; 0 if no array is alive. NULL for a log without a profile.';
COMMENT ON COLUMN live_totals.program_bytes IS
  'What the largest loaded program needs on each device, of those whose need is known: live_programs.argument_bytes + output_bytes - alias_bytes + temp_bytes [bytes]. NULL if none is known.';
COMMENT ON COLUMN live_totals.used_bytes IS
  'The least of bytes_in_use of an allocator, of several devices the largest (allocator_figures.low_used_bytes) [bytes]. NULL if no allocator says.';
COMMENT ON COLUMN live_totals.most_used_bytes IS
  'The largest peak_bytes_in_use of an allocator (allocator_figures.peak_used_bytes) [bytes]. NULL if no allocator says.';
COMMENT ON COLUMN live_totals.pool_bytes IS
  'The largest pool_bytes of an allocator (allocator_figures.pool_bytes) [bytes]. NULL if no allocator says.';
COMMENT ON COLUMN live_totals.block_bytes IS
  'The least of largest_free_block_bytes of an allocator, of several devices the smallest (allocator_figures.low_block_bytes) [bytes]. NULL if no allocator says.';
