-- One row per memory profile, device, own line of Python that made arrays that are alive, and their shape.
CREATE OR REPLACE VIEW live_line_shapes AS
WITH lines AS (
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
    live_arrays.shape, live_arrays.total_bytes, live_arrays.array_count,
    live_arrays.argument_bytes, live_arrays.argument_count, live_arrays.holder_name,
    live_arrays.holder_source
  FROM live_arrays
  LEFT JOIN live_frames AS made
    ON made.run_name = live_arrays.run_name
    AND made.profile_name = live_arrays.profile_name
    AND made.stack_frame_id = live_arrays.stack_frame_id
  LEFT JOIN live_frames AS own
    ON own.run_name = live_arrays.run_name
    AND own.profile_name = live_arrays.profile_name
    AND own.stack_frame_id = made.own_frame_id
),
placed AS (
  SELECT
    lines.run_name, lines.profile_name, lines.device, lines.source, lines.python_function_name,
    lines.shape, lines.total_bytes, lines.array_count, lines.argument_bytes,
    lines.argument_count, lines.holder_name, lines.holder_source,
    row_number() OVER (
      PARTITION BY
        lines.run_name, lines.profile_name, lines.device, lines.source,
        lines.python_function_name, lines.shape
      ORDER BY
        CASE WHEN lines.holder_name IS NULL THEN 1 ELSE 0 END, lines.total_bytes DESC,
        lines.holder_name NULLS LAST, lines.holder_source NULLS LAST
    ) AS holder_place
  FROM lines
)
SELECT
  placed.run_name, placed.profile_name, placed.device, placed.source,
  placed.python_function_name, placed.shape,
  CAST(sum(placed.total_bytes) AS BIGINT) AS total_bytes,
  CAST(sum(placed.array_count) AS BIGINT) AS array_count,
  CASE
    WHEN count(placed.argument_bytes) = count(*)
      THEN CAST(sum(placed.argument_bytes) AS BIGINT)
  END AS argument_bytes,
  CASE
    WHEN count(placed.argument_count) = count(*)
      THEN CAST(sum(placed.argument_count) AS BIGINT)
  END AS argument_count,
  max(CASE WHEN placed.holder_place = 1 THEN placed.holder_name END) AS holder_name,
  max(CASE WHEN placed.holder_place = 1 THEN placed.holder_source END) AS holder_source
FROM placed
GROUP BY
  placed.run_name, placed.profile_name, placed.device, placed.source,
  placed.python_function_name, placed.shape;
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
