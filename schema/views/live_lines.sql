-- One row per memory profile, device and own line of Python that made arrays that are alive.
CREATE OR REPLACE VIEW live_lines AS
SELECT
  live_line_shapes.run_name, live_line_shapes.profile_name, live_line_shapes.device,
  live_line_shapes.source, live_line_shapes.python_function_name,
  sum(live_line_shapes.total_bytes)::BIGINT AS total_bytes,
  sum(live_line_shapes.array_count)::BIGINT AS array_count,
  CASE
    WHEN count(live_line_shapes.argument_bytes) = count(*)
      THEN sum(live_line_shapes.argument_bytes)::BIGINT
  END AS argument_bytes,
  CASE
    WHEN count(live_line_shapes.argument_count) = count(*)
      THEN sum(live_line_shapes.argument_count)::BIGINT
  END AS argument_count
FROM live_line_shapes
GROUP BY
  live_line_shapes.run_name, live_line_shapes.profile_name, live_line_shapes.device,
  live_line_shapes.source, live_line_shapes.python_function_name;
COMMENT ON VIEW live_lines IS
  'One row per memory profile, device and innermost own line of Python that made arrays that are alive. Key: run_name, profile_name, device, source, python_function_name.';
COMMENT ON COLUMN live_lines.total_bytes IS 'Sum of live_line_shapes.total_bytes [bytes].';
COMMENT ON COLUMN live_lines.array_count IS 'Sum of live_line_shapes.array_count.';
COMMENT ON COLUMN live_lines.argument_bytes IS 'Sum of live_line_shapes.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_lines.argument_count IS 'Sum of live_line_shapes.argument_count; NULL if that is not known.';
