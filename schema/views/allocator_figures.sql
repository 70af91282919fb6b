-- One row per memory profile or log and device with statistics of its allocator: the figures that answers use.
CREATE OR REPLACE VIEW allocator_figures AS
SELECT
  allocator_statistics.run_name, allocator_statistics.profile_name, allocator_statistics.device,
  max(CASE WHEN statistic_name = 'bytes_limit' THEN statistic_value END) AS limit_bytes,
  max(CASE WHEN statistic_name = 'bytes_in_use' THEN statistic_value - slack_bytes END)
    AS low_used_bytes,
  max(CASE WHEN statistic_name = 'bytes_in_use' THEN statistic_value + slack_bytes END)
    AS used_bytes,
  max(CASE WHEN statistic_name = 'pool_bytes' THEN statistic_value - slack_bytes END)
    AS low_pool_bytes,
  max(CASE WHEN statistic_name = 'pool_bytes' THEN statistic_value END) AS pool_bytes,
  max(
    CASE WHEN statistic_name = 'largest_free_block_bytes' THEN statistic_value - slack_bytes END
  ) AS low_block_bytes,
  max(
    CASE WHEN statistic_name = 'largest_free_block_bytes' THEN statistic_value + slack_bytes END
  ) AS block_bytes,
  max(CASE WHEN statistic_name = 'free_chunk_bytes' THEN statistic_value - slack_bytes END)
    AS low_free_chunk_bytes,
  max(CASE WHEN statistic_name = 'free_chunk_bytes' THEN statistic_value + slack_bytes END)
    AS free_chunk_bytes,
  max(CASE WHEN statistic_name = 'requested_bytes' THEN statistic_value END) AS requested_bytes,
  max(CASE WHEN statistic_name = 'peak_bytes_in_use' THEN statistic_value END)
    AS peak_used_bytes,
  max(CASE WHEN statistic_name = 'device_free_bytes' THEN statistic_value END)
    AS device_free_bytes,
  max(CASE WHEN statistic_name = 'device_total_bytes' THEN statistic_value END)
    AS device_total_bytes
FROM allocator_statistics
-- Memory for collectives is no device of its own.
WHERE NOT starts_with(allocator_statistics.device, 'GPU_collectivememory_')
GROUP BY
  allocator_statistics.run_name, allocator_statistics.profile_name, allocator_statistics.device;
COMMENT ON VIEW allocator_figures IS
  'One row per memory profile or log and device with statistics of its allocator: those that answers use, from allocator_statistics without memory for collectives; NULL for what the allocator does not say. Of what a log rounds low_ and the other are the least and the most. Key: run_name, profile_name, device.';
COMMENT ON COLUMN allocator_figures.limit_bytes IS 'bytes_limit: the most that it may take [bytes].';
COMMENT ON COLUMN allocator_figures.low_used_bytes IS 'The least of bytes_in_use [bytes].';
COMMENT ON COLUMN allocator_figures.used_bytes IS 'The most of bytes_in_use [bytes].';
COMMENT ON COLUMN allocator_figures.low_pool_bytes IS 'The least of pool_bytes [bytes].';
COMMENT ON COLUMN allocator_figures.pool_bytes IS 'pool_bytes: what it has from the device [bytes].';
COMMENT ON COLUMN allocator_figures.low_block_bytes IS 'The least of largest_free_block_bytes [bytes].';
COMMENT ON COLUMN allocator_figures.block_bytes IS 'The most of largest_free_block_bytes [bytes].';
COMMENT ON COLUMN allocator_figures.low_free_chunk_bytes IS 'The least of free_chunk_bytes: of all free pieces of the pool [bytes].';
COMMENT ON COLUMN allocator_figures.free_chunk_bytes IS 'The most of free_chunk_bytes [bytes].';
COMMENT ON COLUMN allocator_figures.requested_bytes IS 'requested_bytes: what there was no room for [bytes].';
COMMENT ON COLUMN allocator_figures.peak_used_bytes IS 'peak_bytes_in_use: the most that was in use at one time [bytes].';
COMMENT ON COLUMN allocator_figures.device_free_bytes IS 'device_free_bytes: what the device has free [bytes].';
COMMENT ON COLUMN allocator_figures.device_total_bytes IS 'device_total_bytes: memory of the whole device [bytes].';
