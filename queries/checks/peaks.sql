-- title: The distinct peaks are the local maxima of the occupancy, without gaps
-- group: store
--
-- peaks is computed when a module is stored; here it is compared with occupancy_steps. Peak 1 is
-- that of occupied_peaks, the others are steps too, in order of height. Each valley is the lowest
-- step between two adjacent peaks, in some order; a peak is above its own valley by at least 5 % of
-- the highest. Between two peaks the steps fall to the lowest and rise from there without another
-- peak, that is, without a turn of 5 %.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH placed AS (
  SELECT
    peaks.module_id, peaks.color, peaks.peak_ordinal, peaks.peak_time, peaks.occupied_temp_bytes,
    peaks.valley_bytes,
    row_number() OVER (
      PARTITION BY peaks.module_id, peaks.color
      ORDER BY peaks.occupied_temp_bytes DESC, peaks.peak_time
    ) AS place,
    max(peaks.occupied_temp_bytes) OVER (
      PARTITION BY peaks.module_id, peaks.color
    ) AS highest_bytes
  FROM peaks
),
marked AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    occupancy_steps.occupied_temp_bytes,
    sum(CASE WHEN peaks.peak_time IS NOT NULL THEN 1 ELSE 0 END) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS segment
  FROM occupancy_steps
  LEFT JOIN peaks
    ON peaks.module_id = occupancy_steps.module_id
    AND peaks.color = occupancy_steps.color
    AND peaks.peak_time = occupancy_steps.start_time
),
lowest AS (
  SELECT
    marked.module_id, marked.color, marked.segment,
    min(marked.occupied_temp_bytes) AS lowest_bytes,
    arg_min(marked.start_time, (marked.occupied_temp_bytes, marked.start_time)) AS lowest_time,
    max(marked.segment) OVER (PARTITION BY marked.module_id, marked.color) AS last_segment
  FROM marked
  GROUP BY marked.module_id, marked.color, marked.segment
),
-- The steps rise before the first peak and fall after the last one.
turns AS (
  SELECT
    marked.module_id, marked.color, marked.start_time,
    marked.occupied_temp_bytes - CASE
      WHEN marked.segment = lowest.last_segment
        OR (marked.segment > 0 AND marked.start_time <= lowest.lowest_time)
        THEN min(marked.occupied_temp_bytes) OVER (
          PARTITION BY marked.module_id, marked.color, marked.segment
          ORDER BY marked.start_time
          ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
      ELSE min(marked.occupied_temp_bytes) OVER (
        PARTITION BY marked.module_id, marked.color, marked.segment
        ORDER BY marked.start_time
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      )
    END AS turn_bytes
  FROM marked
  JOIN lowest
    ON lowest.module_id = marked.module_id
    AND lowest.color = marked.color
    AND lowest.segment = marked.segment
),
valleys AS (
  SELECT
    lowest.module_id, lowest.color, lowest.lowest_bytes AS valley_bytes,
    count(*) AS valley_count
  FROM lowest
  WHERE lowest.segment > 0 AND lowest.segment < lowest.last_segment
  GROUP BY lowest.module_id, lowest.color, lowest.lowest_bytes
),
stored_valleys AS (
  SELECT peaks.module_id, peaks.color, peaks.valley_bytes, count(*) AS valley_count
  FROM peaks
  WHERE peaks.peak_ordinal > 1
  GROUP BY peaks.module_id, peaks.color, peaks.valley_bytes
)
SELECT
  coalesce(occupied_peaks.module_id, first_peaks.module_id) AS module_id,
  'memory space ' || coalesce(occupied_peaks.color, first_peaks.color) || ': the peak is '
    || coalesce(occupied_peaks.occupied_temp_bytes || ' at ' || occupied_peaks.peak_time, 'none')
    || ', the first distinct peak '
    || coalesce(first_peaks.occupied_temp_bytes || ' at ' || first_peaks.peak_time, 'none')
    AS finding
FROM occupied_peaks
FULL JOIN (SELECT * FROM peaks WHERE peak_ordinal = 1) AS first_peaks
  ON first_peaks.module_id = occupied_peaks.module_id
  AND first_peaks.color = occupied_peaks.color
LEFT JOIN modules ON modules.module_id = occupied_peaks.module_id
WHERE coalesce(modules.format_era, '') NOT IN ('L', 'M')
  AND (
    first_peaks.peak_time IS DISTINCT FROM occupied_peaks.peak_time
    OR first_peaks.occupied_temp_bytes IS DISTINCT FROM occupied_peaks.occupied_temp_bytes
  )
UNION ALL
SELECT
  placed.module_id,
  'memory space ' || placed.color || ': peak ' || placed.peak_ordinal || ' of '
    || placed.occupied_temp_bytes || ' bytes at ' || placed.peak_time || ' is number '
    || placed.place || ', its valley ' || coalesce(placed.valley_bytes::VARCHAR, 'NULL') AS finding
FROM placed
WHERE placed.peak_ordinal <> placed.place
  OR (placed.valley_bytes IS NULL) <> (placed.peak_ordinal = 1)
  OR (placed.occupied_temp_bytes - placed.valley_bytes) * 20 < placed.highest_bytes
  OR placed.occupied_temp_bytes <= placed.valley_bytes
UNION ALL
SELECT
  placed.module_id,
  'memory space ' || placed.color || ': no step of ' || placed.occupied_temp_bytes || ' bytes at '
    || placed.peak_time || ', where a peak is' AS finding
FROM placed
ANTI JOIN occupancy_steps
  ON occupancy_steps.module_id = placed.module_id
  AND occupancy_steps.color = placed.color
  AND occupancy_steps.start_time = placed.peak_time
  AND occupancy_steps.occupied_temp_bytes = placed.occupied_temp_bytes
WHERE placed.occupied_temp_bytes > 0
UNION ALL
SELECT
  coalesce(valleys.module_id, stored_valleys.module_id) AS module_id,
  'memory space ' || coalesce(valleys.color, stored_valleys.color) || ': '
    || coalesce(valleys.valley_count, 0) || ' valleys of '
    || coalesce(valleys.valley_bytes, stored_valleys.valley_bytes) || ' bytes between the peaks, '
    || coalesce(stored_valleys.valley_count, 0) || ' in the table' AS finding
FROM valleys
FULL JOIN stored_valleys
  ON stored_valleys.module_id = valleys.module_id
  AND stored_valleys.color = valleys.color
  AND stored_valleys.valley_bytes = valleys.valley_bytes
WHERE valleys.valley_count IS DISTINCT FROM stored_valleys.valley_count
UNION ALL
SELECT
  turns.module_id,
  'memory space ' || turns.color || ': a peak at ' || turns.start_time || ' is missing' AS finding
FROM turns
JOIN occupied_peaks
  ON occupied_peaks.module_id = turns.module_id
  AND occupied_peaks.color = turns.color
WHERE turns.turn_bytes > 0
  AND turns.turn_bytes * 20 >= occupied_peaks.occupied_temp_bytes
ORDER BY module_id, finding;
