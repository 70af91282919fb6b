-- title: The peak is the first maximum of the occupancy
-- group: overview
--
-- occupied_peaks and occupancy_steps are stored side by side; every module with live ranges has a
-- row in the former for each of its memory spaces, and no step repeats the one before.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH maxima AS (
  SELECT
    occupancy_steps.module_id,
    occupancy_steps.color,
    max(occupancy_steps.occupied_temp_bytes) AS occupied_temp_bytes,
    arg_max(
      occupancy_steps.start_time,
      (occupancy_steps.occupied_temp_bytes, -occupancy_steps.start_time)
    ) AS peak_time
  FROM occupancy_steps
  GROUP BY occupancy_steps.module_id, occupancy_steps.color
),
steps AS (
  SELECT
    occupancy_steps.module_id,
    occupancy_steps.color,
    occupancy_steps.start_time,
    occupancy_steps.occupied_temp_bytes,
    lag(occupancy_steps.occupied_temp_bytes, 1, 0) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS previous_bytes
  FROM occupancy_steps
)
SELECT
  occupied_peaks.module_id,
  'memory space ' || occupied_peaks.color || ': peak ' || occupied_peaks.occupied_temp_bytes
    || ' at ' || occupied_peaks.peak_time || ', largest step '
    || coalesce(maxima.occupied_temp_bytes, 0) || ' at ' || coalesce(maxima.peak_time, 0)
    AS finding
FROM occupied_peaks
LEFT JOIN maxima
  ON maxima.module_id = occupied_peaks.module_id
  AND maxima.color = occupied_peaks.color
WHERE occupied_peaks.occupied_temp_bytes <> coalesce(maxima.occupied_temp_bytes, 0)
  OR occupied_peaks.peak_time <> coalesce(maxima.peak_time, 0)
UNION ALL
SELECT
  steps.module_id,
  'memory space ' || steps.color || ': the step at ' || steps.start_time || ' changes nothing'
    AS finding
FROM steps
WHERE steps.occupied_temp_bytes = steps.previous_bytes
UNION ALL
SELECT
  modules.module_id,
  'memory space ' || allocations.color || ': live ranges, but no peak' AS finding
FROM allocations
JOIN modules ON modules.module_id = allocations.module_id
ANTI JOIN occupied_peaks
  ON occupied_peaks.module_id = allocations.module_id
  AND occupied_peaks.color = allocations.color
WHERE modules.has_live_ranges
GROUP BY modules.module_id, allocations.color
ORDER BY module_id, finding;
