-- One row per memory profile and device on which arrays are alive: their sums.
CREATE OR REPLACE VIEW live_sums AS
SELECT
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device,
  sum(live_arrays.total_bytes)::BIGINT AS total_bytes,
  sum(live_arrays.array_count)::BIGINT AS array_count,
  sum(live_arrays.argument_bytes)::BIGINT AS argument_bytes,
  sum(live_arrays.argument_count)::BIGINT AS argument_count
FROM live_arrays
GROUP BY live_arrays.run_name, live_arrays.profile_name, live_arrays.device;
COMMENT ON VIEW live_sums IS
  'One row per memory profile and device on which arrays are alive: their sums. Key: run_name, profile_name, device.';
COMMENT ON COLUMN live_sums.total_bytes IS 'Sum of live_arrays.total_bytes [bytes].';
COMMENT ON COLUMN live_sums.array_count IS 'Sum of live_arrays.array_count.';
COMMENT ON COLUMN live_sums.argument_bytes IS 'Sum of live_arrays.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_sums.argument_count IS 'Sum of live_arrays.argument_count; NULL if that is not known.';
