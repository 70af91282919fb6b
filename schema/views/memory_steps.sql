-- One row per span of the program in which the occupied bytes of a memory space stay the same.
-- Unlike occupancy_steps it has no gap: it starts at 0 and ends at the end of the schedule.
CREATE OR REPLACE VIEW memory_steps AS
WITH steps AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    occupancy_steps.occupied_temp_bytes
  FROM occupancy_steps
  UNION ALL
  SELECT
    occupied_peaks.module_id, occupied_peaks.color,
    0 AS start_time,
    0 AS occupied_temp_bytes
  FROM occupied_peaks
  WHERE occupied_peaks.peak_time IS NOT NULL
    AND NOT EXISTS (
      SELECT 1
      FROM occupancy_steps AS first_steps
      WHERE first_steps.module_id = occupied_peaks.module_id
        AND first_steps.color = occupied_peaks.color
        AND first_steps.start_time = 0
    )
)
SELECT
  steps.module_id, steps.color, steps.start_time,
  coalesce(
    lead(steps.start_time) OVER (
      PARTITION BY steps.module_id, steps.color
      ORDER BY steps.start_time
    ) - 1,
    modules.schedule_length
  ) AS end_time,
  steps.occupied_temp_bytes,
  memory_figures.fixed_bytes + steps.occupied_temp_bytes AS occupied_bytes
FROM steps
JOIN modules ON modules.module_id = steps.module_id
JOIN memory_figures
  ON memory_figures.module_id = steps.module_id
  AND memory_figures.color = steps.color;
COMMENT ON VIEW memory_steps IS
  'One row per span of the program in which the occupied bytes of a memory space stay the same; the spans of a module cover its whole schedule. No rows for a module whose peak, or its instant, is unknown. Key: module_id, color, start_time.';
COMMENT ON COLUMN memory_steps.start_time IS 'First instant of the span [program order]: occupancy_steps.start_time, 0 for the first one.';
COMMENT ON COLUMN memory_steps.end_time IS 'Last instant of the span, inclusive [program order]; modules.schedule_length for the last one.';
COMMENT ON COLUMN memory_steps.occupied_bytes IS 'All bytes occupied [bytes]: occupied_temp_bytes plus memory_figures.fixed_bytes. Its maximum is memory_figures.peak_bytes.';
