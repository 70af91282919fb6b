-- title: The printed peak lists the values that are live at its instant, with their sizes
-- group: store
--
-- Format section 6.2. Through jaxlib 0.5.3 the lines have no index and the size of the whole
-- instruction; from 0.6.1 they are ordered by size, then name, and have a running sum.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH printed AS (
  SELECT
    peak_contributors.module_id, peak_contributors.instruction_name,
    coalesce(peak_contributors.shape_index, '') AS shape_index,
    count(*) AS line_count
  FROM peak_contributors
  GROUP BY
    peak_contributors.module_id, peak_contributors.instruction_name,
    coalesce(peak_contributors.shape_index, '')
),
indexed_modules AS (
  SELECT DISTINCT peak_contributors.module_id
  FROM peak_contributors
  WHERE peak_contributors.shape_index IS NOT NULL
),
live AS (
  SELECT
    live_ranges.module_id, live_ranges.instruction_name,
    CASE WHEN indexed_modules.module_id IS NULL THEN '' ELSE live_ranges.shape_index END
      AS shape_index,
    count(*) AS value_count
  FROM live_ranges
  JOIN modules ON modules.module_id = live_ranges.module_id
  LEFT JOIN indexed_modules ON indexed_modules.module_id = live_ranges.module_id
  WHERE modules.reported_peak_status = 'printed'
    AND live_ranges.start_time <= modules.reported_peak_time
    AND live_ranges.end_time >= modules.reported_peak_time
  GROUP BY
    live_ranges.module_id, live_ranges.instruction_name,
    CASE WHEN indexed_modules.module_id IS NULL THEN '' ELSE live_ranges.shape_index END
),
lines AS (
  SELECT
    peak_contributors.module_id, peak_contributors.contributor_ordinal,
    peak_contributors.instruction_name, peak_contributors.shape_index,
    peak_contributors.logical_bytes, peak_contributors.cumulative_bytes,
    sum(peak_contributors.logical_bytes) OVER listing AS summed_bytes,
    lag(peak_contributors.logical_bytes) OVER listing AS previous_bytes,
    lag(peak_contributors.instruction_name) OVER listing AS previous_name
  FROM peak_contributors
  WINDOW listing AS (
    PARTITION BY peak_contributors.module_id
    ORDER BY peak_contributors.contributor_ordinal
  )
)
SELECT
  coalesce(printed.module_id, live.module_id) AS module_id,
  coalesce(printed.instruction_name, live.instruction_name)
    || coalesce(printed.shape_index, live.shape_index) || ': listed '
    || coalesce(printed.line_count, 0) || ' times, live ' || coalesce(live.value_count, 0)
    || ' times' AS finding
FROM printed
FULL JOIN live
  ON live.module_id = printed.module_id
  AND live.instruction_name = printed.instruction_name
  AND live.shape_index = printed.shape_index
WHERE printed.line_count IS DISTINCT FROM live.value_count
UNION ALL
SELECT
  lines.module_id,
  lines.instruction_name || coalesce(lines.shape_index, '') || ': listed with '
    || lines.logical_bytes || ' bytes, its shape has ' || shapes.logical_bytes AS finding
FROM lines
LEFT JOIN "values"
  ON "values".module_id = lines.module_id
  AND "values".instruction_name = lines.instruction_name
  AND "values".shape_index = lines.shape_index
LEFT JOIN instructions
  ON instructions.module_id = lines.module_id
  AND instructions.instruction_name = lines.instruction_name
JOIN shapes
  ON shapes.shape
  = CASE WHEN lines.shape_index IS NULL THEN instructions.shape ELSE "values".shape END
WHERE lines.logical_bytes <> shapes.logical_bytes
UNION ALL
SELECT
  lines.module_id,
  lines.instruction_name || lines.shape_index || ': line ' || lines.contributor_ordinal
    || ' is out of order or its running sum is not ' || wrapped_int64(lines.summed_bytes)
    AS finding
FROM lines
WHERE lines.cumulative_bytes IS NOT NULL
  AND (
    lines.cumulative_bytes <> wrapped_int64(lines.summed_bytes)
    OR lines.previous_bytes < lines.logical_bytes
    OR (
      lines.previous_bytes = lines.logical_bytes
      AND lines.previous_name > lines.instruction_name
    )
  )
ORDER BY module_id, finding;
