-- One row per memory profile, device, own line of Python that made arrays that are alive, and their shape.
CREATE OR REPLACE VIEW live_line_shapes AS
WITH sums AS (
  SELECT
    live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
    live_array_lines.source, live_array_lines.python_function_name, live_array_lines.shape,
    CAST(sum(live_array_lines.total_bytes) AS BIGINT) AS total_bytes,
    CAST(sum(live_array_lines.array_count) AS BIGINT) AS array_count,
    CASE
      WHEN count(live_array_lines.argument_bytes) = count(*)
        THEN CAST(sum(live_array_lines.argument_bytes) AS BIGINT)
    END AS argument_bytes,
    CASE
      WHEN count(live_array_lines.argument_count) = count(*)
        THEN CAST(sum(live_array_lines.argument_count) AS BIGINT)
    END AS argument_count
  FROM live_array_lines
  GROUP BY
    live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
    live_array_lines.source, live_array_lines.python_function_name, live_array_lines.shape
),
-- Few profiles have holders: only those rows are sorted.
placed AS (
  SELECT
    live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
    live_array_lines.source, live_array_lines.python_function_name, live_array_lines.shape,
    live_array_lines.holder_name, live_array_lines.holder_source,
    row_number() OVER (
      PARTITION BY
        live_array_lines.run_name, live_array_lines.profile_name, live_array_lines.device,
        live_array_lines.source, live_array_lines.python_function_name, live_array_lines.shape
      ORDER BY
        live_array_lines.total_bytes DESC, live_array_lines.holder_name,
        live_array_lines.holder_source NULLS LAST
    ) AS holder_place
  FROM live_array_lines
  WHERE live_array_lines.holder_name IS NOT NULL
)
SELECT
  sums.run_name, sums.profile_name, sums.device, sums.source, sums.python_function_name,
  sums.shape, sums.total_bytes, sums.array_count, sums.argument_bytes, sums.argument_count,
  placed.holder_name, placed.holder_source
FROM sums
LEFT JOIN placed
  ON placed.holder_place = 1
  AND placed.run_name = sums.run_name
  AND placed.profile_name = sums.profile_name
  AND placed.device = sums.device
  AND placed.source = sums.source
  AND placed.python_function_name IS NOT DISTINCT FROM sums.python_function_name
  AND placed.shape IS NOT DISTINCT FROM sums.shape;
COMMENT ON VIEW live_line_shapes IS
  'One row per memory profile, device, innermost own line of Python that made arrays that are alive, and their shape. Key: run_name, profile_name, device, source, python_function_name, shape.';
COMMENT ON COLUMN live_line_shapes.total_bytes IS 'Sum of live_arrays.total_bytes [bytes].';
COMMENT ON COLUMN live_line_shapes.array_count IS 'Sum of live_arrays.array_count.';
COMMENT ON COLUMN live_line_shapes.argument_bytes IS 'Sum of live_arrays.argument_bytes [bytes]; NULL if it is not known which are arguments.';
COMMENT ON COLUMN live_line_shapes.argument_count IS 'Sum of live_arrays.argument_count; NULL if that is not known.';
COMMENT ON COLUMN live_line_shapes.holder_name IS 'Variable that holds those of the stack with the most bytes; NULL if none is known.';
COMMENT ON COLUMN live_line_shapes.holder_source IS 'File and line that first assign it; NULL if not known.';
