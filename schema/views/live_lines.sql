-- One row per memory profile, device and own line of Python that made arrays that are alive.
CREATE OR REPLACE VIEW live_lines AS
SELECT
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device,
  coalesce(
    own.source_file || ':' || own.source_line,
    library_source(made.source_file, made.source_line),
    '(no stack)'
  ) AS source,
  CASE
    WHEN own.stack_frame_id IS NOT NULL THEN own.function_name
    ELSE made.function_name
  END AS python_function_name,
  sum(live_arrays.total_bytes)::BIGINT AS total_bytes,
  sum(live_arrays.array_count)::BIGINT AS array_count,
  CASE
    WHEN count(live_arrays.argument_bytes) = count(*)
      THEN sum(live_arrays.argument_bytes)::BIGINT
  END AS argument_bytes,
  CASE
    WHEN count(live_arrays.argument_count) = count(*)
      THEN sum(live_arrays.argument_count)::BIGINT
  END AS argument_count
FROM live_arrays
LEFT JOIN live_frames AS made
  ON made.run_name = live_arrays.run_name
  AND made.profile_name = live_arrays.profile_name
  AND made.stack_frame_id = live_arrays.stack_frame_id
LEFT JOIN live_frames AS own
  ON own.run_name = live_arrays.run_name
  AND own.profile_name = live_arrays.profile_name
  AND own.stack_frame_id = made.own_frame_id
GROUP BY
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device, source, python_function_name;
COMMENT ON VIEW live_lines IS
  'One row per memory profile, device and innermost own line of Python that made arrays that are alive. Key: run_name, profile_name, device, source, python_function_name.';
COMMENT ON COLUMN live_lines.source IS 'File and line of live_arrays'' own frame; "library FILE:LINE" where all frames are library code, (no stack) where JAX has none.';
COMMENT ON COLUMN live_lines.python_function_name IS 'Function of that line; NULL if unknown.';
COMMENT ON COLUMN live_lines.total_bytes IS 'Sum of live_arrays.total_bytes [bytes].';
COMMENT ON COLUMN live_lines.array_count IS 'Sum of live_arrays.array_count.';
COMMENT ON COLUMN live_lines.argument_bytes IS 'Sum of live_arrays.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_lines.argument_count IS 'Sum of live_arrays.argument_count; NULL if that is not known.';
