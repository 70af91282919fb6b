-- title: Bytes that layouts pad, by shape and layout
-- group: waste
-- engines: duckdb, spark
--
-- An array can take more bytes than its elements: tiled layouts (TPU) round dimensions up to whole
-- tiles. For each run and function (its compilation with the largest known peak) and each shape
-- with its layout: what one value takes, what its elements need, and how much of the difference
-- counts at the peak of the memory space. Most padding at the peak first, then most in all values.
-- A small minor dimension is the usual cause; another axis last, or dimensions that are multiples
-- of the tile, avoid it.
--
-- wrong when: A value that shares its bytes with others at the peak counts with the part it holds,
-- and only what goes beyond its elements' bytes is called padding, so an in-place pair may show
-- none. padding_bytes of values that live at different times do not add up to memory. A dynamic
-- array (<=N) has a few bytes for its lengths, which look like padding. A value that takes
-- fewer bytes than its elements has no padding, and none is taken off that of others. The pointer
-- tables of tuples are left out; query tuple-tables has them.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column shape VARCHAR: Shape with layout.
-- column peak_padding_bytes HUGEINT: Padding held at the peak [bytes]; NULL if that is unknown.
-- column peak_value_count BIGINT: Values of this shape that hold it; NULL likewise.
-- column size_bytes BIGINT: Assigned size of one value [bytes].
-- column logical_bytes BIGINT: Size of its elements [bytes].
-- column padding_bytes HUGEINT: The difference [bytes].
-- column padding_ratio DOUBLE: Share of the assigned size that is padding (0 to 1).
-- column value_count BIGINT: Values of this shape in the module, those that merge others (phi) left
--   out.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
padded_values AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.peak_bytes,
    value_details.shape,
    value_details.size_bytes,
    value_details.logical_bytes,
    value_details.padding_bytes,
    value_details.is_phi,
    greatest(value_details.padding_bytes + peak_values.held_bytes - value_details.size_bytes, 0)
      AS peak_padding_bytes
  FROM function_modules
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = function_modules.module_id
    AND value_details.color = function_modules.color
  LEFT JOIN peak_values
    ON peak_values.module_id = value_details.module_id
    AND peak_values.value_id = value_details.value_id
  WHERE value_details.padding_bytes > 0
    AND NOT value_details.is_tuple
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (params.color IS NULL OR function_modules.color = params.color)
),
padded_shapes AS (
  SELECT
    padded_values.run_name,
    padded_values.function_name,
    padded_values.platform,
    padded_values.color,
    padded_values.shape,
    padded_values.size_bytes,
    padded_values.logical_bytes,
    padded_values.padding_bytes,
    CASE
      WHEN max(padded_values.peak_bytes) IS NOT NULL
        THEN coalesce(sum(padded_values.peak_padding_bytes), 0)
    END AS peak_padding_bytes,
    CASE
      WHEN max(padded_values.peak_bytes) IS NOT NULL
        THEN count(CASE WHEN padded_values.peak_padding_bytes > 0 THEN 1 END)
    END AS peak_value_count,
    count(CASE WHEN NOT padded_values.is_phi THEN 1 END) AS value_count
  FROM padded_values
  GROUP BY
    padded_values.run_name,
    padded_values.function_name,
    padded_values.platform,
    padded_values.color,
    padded_values.shape,
    padded_values.size_bytes,
    padded_values.logical_bytes,
    padded_values.padding_bytes
),
answers AS (
  SELECT
    padded_shapes.run_name,
    padded_shapes.function_name,
    padded_shapes.color,
    padded_shapes.shape,
    padded_shapes.peak_padding_bytes,
    padded_shapes.peak_value_count,
    padded_shapes.size_bytes,
    padded_shapes.logical_bytes,
    padded_shapes.padding_bytes,
    CAST(padded_shapes.padding_bytes AS DOUBLE)
      / nullif(padded_shapes.size_bytes, 0) AS padding_ratio,
    padded_shapes.value_count,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        padded_shapes.peak_padding_bytes DESC NULLS LAST,
        padded_shapes.padding_bytes * padded_shapes.value_count DESC,
        padded_shapes.run_name,
        padded_shapes.function_name,
        padded_shapes.platform NULLS LAST,
        padded_shapes.color,
        padded_shapes.shape,
        padded_shapes.size_bytes
    ) AS place
  FROM padded_shapes
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS shape,
    NULL AS peak_padding_bytes,
    NULL AS peak_value_count,
    NULL AS size_bytes,
    NULL AS logical_bytes,
    NULL AS padding_bytes,
    NULL AS padding_ratio,
    NULL AS value_count,
    function_modules.unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.unknown_count > 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.shape,
  answers.peak_padding_bytes,
  answers.peak_value_count,
  answers.size_bytes,
  answers.logical_bytes,
  answers.padding_bytes,
  answers.padding_ratio,
  answers.value_count,
  answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
