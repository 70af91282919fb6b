-- One row per statistic of a device's allocator, of a memory profile or a log. Key: run_name, profile_name, device, statistic_name.
CREATE TABLE allocator_statistics (
  run_name VARCHAR NOT NULL,
  profile_name VARCHAR NOT NULL,
  device VARCHAR NOT NULL,
  statistic_name VARCHAR NOT NULL,
  statistic_value BIGINT NOT NULL,
  slack_bytes BIGINT NOT NULL
);
COMMENT ON TABLE allocator_statistics IS
  'One row per statistic of a device''s allocator: of device.memory_stats() when a memory profile was taken, or of its report in a log, with or without a profile; none on CPU. Key: run_name, profile_name, device, statistic_name.';
COMMENT ON COLUMN allocator_statistics.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN allocator_statistics.profile_name IS
  'The profile (live_profiles.profile_name of the run), or the log that has the report: the path of the file below the ingested directory.';
COMMENT ON COLUMN allocator_statistics.device IS
  'The device as JAX prints it, such as cuda:0; without a profile, and for memory of collectives, the allocator''s name in the log, such as GPU_0_bfc, gpu_async_0 or GPU_collectivememory_0_bfc.';
COMMENT ON COLUMN allocator_statistics.statistic_name IS
  'Name of the statistic in JAX: bytes_in_use, bytes_limit, largest_free_block_bytes, pool_bytes, num_allocs and others; from logs also free_chunk_bytes (sum of its free chunks), requested_bytes (what it had no room for), preallocated_bytes (set aside when it was made), device_free_bytes and device_total_bytes (of the whole device, by CUDA).';
COMMENT ON COLUMN allocator_statistics.statistic_value IS
  'Its value: bytes, or a count for a name that begins with num_ [bytes].';
COMMENT ON COLUMN allocator_statistics.slack_bytes IS
  'How far off the value may be, either way [bytes]: half of the last digit where a log has rounded sizes, half of the range where bins of the allocator bound its largest free block; 0 if it is exact.';
