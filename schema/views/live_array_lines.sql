-- One row per row of live_arrays, with the line of Python that made them.
CREATE OR REPLACE VIEW live_array_lines AS
SELECT
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device,
  coalesce(live_arrays.source, '(no stack)') AS source, live_arrays.python_function_name,
  live_arrays.shape, live_arrays.total_bytes, live_arrays.array_count,
  live_arrays.argument_bytes, live_arrays.argument_count, live_arrays.holder_name,
  live_arrays.holder_source
FROM live_arrays;
COMMENT ON VIEW live_array_lines IS
  'One row per row of live_arrays: those arrays, with the innermost own line of Python that made them. Key: that of live_arrays; several rows may have the same line.';
COMMENT ON COLUMN live_array_lines.source IS 'live_arrays.source; (no stack) where that is NULL.';
COMMENT ON COLUMN live_array_lines.python_function_name IS 'live_arrays.python_function_name: function of that line; NULL if unknown.';
