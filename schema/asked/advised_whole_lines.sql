-- Lines that may save more at the peak than the best of their values.
CREATE OR REPLACE VIEW advised_whole_lines AS
-- The whole line becomes bf16 if it holds nothing else at the peak.
WITH whole_lines AS (
  SELECT
    lines.module_id, lines.color, lines.kind, lines.name, lines.kept_bytes,
    savings.saving_bytes, savings.half_saving_bytes,
    savings.held_bytes - lines.held_bytes AS other_bytes
  FROM advised_lines AS lines
  JOIN answered_functions AS functions
    ON functions.module_id = lines.module_id
    AND functions.color = lines.color
    AND functions.peak_bytes * coalesce(getvariable('min_ratio')::DOUBLE, 0.01)
      <= lines.held_bytes
  JOIN peak_savings AS savings
    ON savings.module_id = lines.module_id
    AND savings.color = lines.color
    AND savings.what = 'source_line'
    AND savings.name = lines.name
  WHERE (lines.value_count > 1 AND lines.kind NOT IN ('residual', 'dtype'))
    OR (savings.held_bytes = lines.held_bytes AND lines.kind = 'dtype')
),
steps AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    lead(occupancy_steps.start_time) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS next_time,
    occupied_peaks.occupied_temp_bytes - occupancy_steps.occupied_temp_bytes AS lower_bytes
  FROM answered_functions AS functions
  JOIN occupancy_steps
    ON occupancy_steps.module_id = functions.module_id
    AND occupancy_steps.color = functions.color
  JOIN occupied_peaks
    ON occupied_peaks.module_id = functions.module_id
    AND occupied_peaks.color = functions.color
),
-- Instants at which these values limit what the line saves: nearly as high as the peak.
high_steps AS (
  SELECT
    whole_lines.module_id, whole_lines.color, whole_lines.kind, whole_lines.name,
    steps.start_time, steps.next_time
  FROM whole_lines
  JOIN steps
    ON steps.module_id = whole_lines.module_id
    AND steps.color = whole_lines.color
    AND steps.lower_bytes < whole_lines.saving_bytes
),
-- Other values of the line, which stay: at no instant do they reduce the saving by more than they
-- hold there.
others AS (
  SELECT
    whole_lines.module_id, whole_lines.color, whole_lines.kind, whole_lines.name,
    temp_values.start_time, temp_values.end_time, temp_values.size_bytes
  FROM whole_lines
  JOIN value_sources
    ON value_sources.module_id = whole_lines.module_id
    AND value_sources.source_line = whole_lines.name
  JOIN temp_values
    ON temp_values.module_id = value_sources.module_id
    AND temp_values.value_id = value_sources.value_id
    AND temp_values.color = whole_lines.color
  JOIN "values"
    ON "values".module_id = temp_values.module_id
    AND "values".value_id = temp_values.value_id
  LEFT JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN advised_items AS items
    ON items.module_id = whole_lines.module_id
    AND items.color = whole_lines.color
    AND items.kind = whole_lines.kind
    AND items.value_id = temp_values.value_id
  WHERE items.value_id IS NULL
    AND (whole_lines.kind <> 'dtype' OR coalesce(shapes.dtype, '') <> 'f32')
),
-- Unions of two each: DuckDB prints longer ones with other parentheses after a copy.
value_changes AS (
  SELECT
    module_id, color, kind, name, start_time AS change_time, size_bytes AS change_bytes,
    0 AS high_change
  FROM others
  UNION ALL
  SELECT module_id, color, kind, name, end_time + 1, -size_bytes, 0
  FROM others
),
step_changes AS (
  SELECT
    module_id, color, kind, name, start_time AS change_time, 0 AS change_bytes, 1 AS high_change
  FROM high_steps
  UNION ALL
  SELECT module_id, color, kind, name, next_time, 0, -1
  FROM high_steps
  WHERE next_time IS NOT NULL
),
changes AS (
  SELECT module_id, color, kind, name, change_time, change_bytes, high_change
  FROM value_changes
  UNION ALL
  SELECT module_id, color, kind, name, change_time, change_bytes, high_change
  FROM step_changes
),
changed AS (
  SELECT
    module_id, color, kind, name, change_time, sum(change_bytes) AS change_bytes,
    sum(high_change) AS high_change
  FROM changes
  GROUP BY module_id, color, kind, name, change_time
),
instants AS (
  SELECT
    module_id, color, kind, name,
    sum(change_bytes) OVER (
      PARTITION BY module_id, color, kind, name ORDER BY change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS other_bytes,
    sum(high_change) OVER (
      PARTITION BY module_id, color, kind, name ORDER BY change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS high_count
  FROM changed
),
most_others AS (
  SELECT module_id, color, kind, name, max(other_bytes) AS other_bytes
  FROM instants
  WHERE high_count > 0
  GROUP BY module_id, color, kind, name
)
SELECT
  whole_lines.module_id, whole_lines.color, whole_lines.kind, whole_lines.name,
  CASE WHEN whole_lines.kind = 'dtype' THEN whole_lines.half_saving_bytes
    ELSE whole_lines.saving_bytes - whole_lines.kept_bytes
  END - greatest(coalesce(most_others.other_bytes, 0), whole_lines.other_bytes) AS saving_bytes
FROM whole_lines
LEFT JOIN most_others
  ON most_others.module_id = whole_lines.module_id
  AND most_others.color = whole_lines.color
  AND most_others.kind = whole_lines.kind
  AND most_others.name = whole_lines.name;
COMMENT ON VIEW advised_whole_lines IS
  'One row per line of advised_lines with several values (for dtype with everything that it holds) whose saving as a whole is in peak_savings, and that holds at least the share min_ratio of the peak (a variable of the query advice), with what is saved without the whole line. Key: module_id, color, kind, name.';
COMMENT ON COLUMN advised_whole_lines.module_id IS 'advised_lines.module_id.';
COMMENT ON COLUMN advised_whole_lines.color IS 'advised_lines.color.';
COMMENT ON COLUMN advised_whole_lines.kind IS 'advised_lines.kind.';
COMMENT ON COLUMN advised_whole_lines.name IS 'advised_lines.name.';
COMMENT ON COLUMN advised_whole_lines.saving_bytes IS 'How far the highest peak falls at least without these values [bytes]: peak_savings.saving_bytes of the line (half_saving_bytes for dtype) minus what of it stays.';
