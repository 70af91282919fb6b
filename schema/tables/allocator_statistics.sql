-- One row per statistic of a device's allocator, with a memory profile. Key: run_name, profile_name, device, statistic_name.
CREATE TABLE allocator_statistics (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  device VARCHAR NOT NULL,
  statistic_name VARCHAR NOT NULL,
  statistic_value BIGINT NOT NULL
);
COMMENT ON TABLE allocator_statistics IS
  'One row per statistic of a device''s allocator (device.memory_stats()), or of its report in a log, when a memory profile was taken; none on CPU. Key: run_name, profile_name, device, statistic_name.';
COMMENT ON COLUMN allocator_statistics.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN allocator_statistics.profile_name IS
  'The profile; refers to live_profiles.profile_name of the run.';
COMMENT ON COLUMN allocator_statistics.device IS
  'The device as JAX prints it, such as cuda:0.';
COMMENT ON COLUMN allocator_statistics.statistic_name IS
  'Name of the statistic in JAX: bytes_in_use, bytes_limit, largest_free_block_bytes, num_allocs and others.';
COMMENT ON COLUMN allocator_statistics.statistic_value IS
  'Its value: bytes, or a count for a name that begins with num_ [bytes].';
