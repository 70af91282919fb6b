-- One row per memory profile, device, own line of Python that made arrays that are alive, and their shape.
CREATE OR REPLACE VIEW live_line_shapes AS
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
  live_arrays.shape,
  sum(live_arrays.total_bytes)::BIGINT AS total_bytes,
  sum(live_arrays.array_count)::BIGINT AS array_count,
  CASE
    WHEN count(live_arrays.argument_bytes) = count(*)
      THEN sum(live_arrays.argument_bytes)::BIGINT
  END AS argument_bytes,
  CASE
    WHEN count(live_arrays.argument_count) = count(*)
      THEN sum(live_arrays.argument_count)::BIGINT
  END AS argument_count,
  arg_max(live_arrays.holder_name, live_arrays.total_bytes) AS holder_name,
  arg_max(live_arrays.holder_source, live_arrays.total_bytes) FILTER (
    WHERE live_arrays.holder_name IS NOT NULL
  ) AS holder_source
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
  live_arrays.run_name, live_arrays.profile_name, live_arrays.device, source, python_function_name,
  live_arrays.shape;
COMMENT ON VIEW live_line_shapes IS
  'One row per memory profile, device, innermost own line of Python that made arrays that are alive, and their shape. Key: run_name, profile_name, device, source, python_function_name, shape.';
COMMENT ON COLUMN live_line_shapes.source IS 'File and line of live_arrays'' own frame; "library FILE:LINE" where all frames are library code, (no stack) where JAX has none.';
COMMENT ON COLUMN live_line_shapes.python_function_name IS 'Function of that line; NULL if unknown.';
COMMENT ON COLUMN live_line_shapes.total_bytes IS 'Sum of live_arrays.total_bytes [bytes].';
COMMENT ON COLUMN live_line_shapes.array_count IS 'Sum of live_arrays.array_count.';
COMMENT ON COLUMN live_line_shapes.argument_bytes IS 'Sum of live_arrays.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_line_shapes.argument_count IS 'Sum of live_arrays.argument_count; NULL if that is not known.';
COMMENT ON COLUMN live_line_shapes.holder_name IS 'Variable that holds those of the stack with the most bytes; NULL if none is known.';
COMMENT ON COLUMN live_line_shapes.holder_source IS 'File and line that first assign it; NULL if not known.';
