-- One row per memory profile, device and own line of Python that made arrays that are alive.
CREATE OR REPLACE VIEW live_lines AS
SELECT
  live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
  live_array_lines.source, live_array_lines.python_function_name,
  sum(live_array_lines.total_bytes)::BIGINT AS total_bytes,
  sum(live_array_lines.array_count)::BIGINT AS array_count,
  CASE
    WHEN count(live_array_lines.argument_bytes) = count(*)
      THEN sum(live_array_lines.argument_bytes)::BIGINT
  END AS argument_bytes,
  CASE
    WHEN count(live_array_lines.argument_count) = count(*)
      THEN sum(live_array_lines.argument_count)::BIGINT
  END AS argument_count
FROM live_array_lines
GROUP BY
  live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
  live_array_lines.source, live_array_lines.python_function_name;
COMMENT ON VIEW live_lines IS
  'One row per memory profile, device and innermost own line of Python that made arrays that are alive. Key: run_name, profile_name, device, source, python_function_name.';
COMMENT ON COLUMN live_lines.total_bytes IS 'Sum of live_arrays.total_bytes [bytes].';
COMMENT ON COLUMN live_lines.array_count IS 'Sum of live_arrays.array_count.';
COMMENT ON COLUMN live_lines.argument_bytes IS 'Sum of live_arrays.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_lines.argument_count IS 'Sum of live_arrays.argument_count; NULL if that is not known.';
