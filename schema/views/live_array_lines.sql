-- One row per row of live_arrays, with the line of Python that made them.
CREATE OR REPLACE VIEW live_array_lines AS
SELECT
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device,
  coalesce(
    CASE WHEN own.own_frame_id IS NOT NULL THEN own.source_file || ':' || own.source_line END,
    library_source(own.source_file, own.source_line),
    '(no stack)'
  ) AS source,
  own.function_name AS python_function_name,
  live_arrays.shape, live_arrays.total_bytes, live_arrays.array_count,
  live_arrays.argument_bytes, live_arrays.argument_count, live_arrays.holder_name,
  live_arrays.holder_source
FROM live_arrays
-- Of all frames only numbers are read; names only of those that a line may have.
LEFT JOIN live_frames AS made
  ON made.run_name = live_arrays.run_name
  AND made.profile_name = live_arrays.profile_name
  AND made.stack_frame_id = live_arrays.stack_frame_id
LEFT JOIN live_frames AS own
  ON own.run_name = live_arrays.run_name
  AND own.profile_name = live_arrays.profile_name
  AND own.stack_frame_id = coalesce(made.own_frame_id, made.stack_frame_id)
  AND coalesce(own.own_frame_id, own.stack_frame_id) = own.stack_frame_id;
COMMENT ON VIEW live_array_lines IS
  'One row per row of live_arrays: those arrays, with the innermost own line of Python that made them. Key: that of live_arrays; several rows may have the same line.';
COMMENT ON COLUMN live_array_lines.source IS 'File and line of live_arrays'' own frame; "library FILE:LINE" where all frames are library code, (no stack) where JAX has none.';
COMMENT ON COLUMN live_array_lines.python_function_name IS 'Function of that line; NULL if unknown.';
