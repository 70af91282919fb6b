-- title: The peak is the first maximum of the occupancy
-- group: store
--
-- occupied_peaks and occupancy_steps are stored separately; every module with a known peak has a
-- row in the former for each of its memory spaces, and no step repeats the one before. Values share
-- bytes only at an instant of handover (overlap), so the occupied bytes at an instant are at most
-- the sizes of all live temp values, and at least those of the ones that do not begin then, and of
-- the ones that do not end then; contexts of asynchronous calls, which may share bytes (overlap),
-- count only in the former. Out-of-memory messages have only the peak.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH scratch AS (
  SELECT "values".module_id, "values".value_id
  FROM "values"
  SEMI JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
    AND (instructions.opcode GLOB '*-start' OR instructions.opcode GLOB '*-update')
    AND instructions.opcode <> 'copy-start'
  WHERE "values".shape_index GLOB '{[2-9]*' OR "values".shape_index GLOB '{1[0-9]*'
),
maxima AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color,
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
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    occupancy_steps.occupied_temp_bytes,
    lag(occupancy_steps.occupied_temp_bytes, 1, 0) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS previous_bytes
  FROM occupancy_steps
),
live_values AS (
  SELECT
    allocations.module_id, allocations.color,
    allocations.kind = 'temp' AS is_temp,
    "values".size_bytes::HUGEINT AS size_bytes,
    CASE WHEN scratch.value_id IS NULL THEN "values".size_bytes ELSE 0 END::HUGEINT AS own_bytes,
    live_ranges.start_time, live_ranges.end_time
  FROM live_ranges
  JOIN modules ON modules.module_id = live_ranges.module_id
  JOIN "values"
    ON "values".module_id = live_ranges.module_id
    AND "values".value_id = live_ranges.value_id
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  LEFT JOIN scratch
    ON scratch.module_id = "values".module_id
    AND scratch.value_id = "values".value_id
  WHERE modules.peak_unknown_reason IS NULL
    AND live_ranges.start_time <= live_ranges.end_time
),
changes AS (
  SELECT module_id, color, start_time AS change_time, size_bytes AS live_change FROM live_values
  UNION ALL
  SELECT module_id, color, end_time + 1 AS change_time, -size_bytes AS live_change
  FROM live_values
),
sums AS (
  SELECT
    changes.module_id, changes.color,
    sum(sum(changes.live_change)) OVER (
      PARTITION BY changes.module_id, changes.color
      ORDER BY changes.change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS live_bytes
  FROM changes
  GROUP BY changes.module_id, changes.color, changes.change_time
),
most AS (
  SELECT module_id, color, max(live_bytes) AS live_bytes FROM sums GROUP BY module_id, color
),
-- What each value adds from an instant on to the live bytes, to those of values that began before,
-- and to those of values that last longer.
temp_changes AS (
  SELECT
    module_id,
    color,
    start_time AS change_time,
    size_bytes AS live_change,
    0::HUGEINT AS before_change,
    CASE WHEN end_time > start_time THEN own_bytes ELSE 0 END AS beyond_change
  FROM live_values
  WHERE is_temp AND size_bytes > 0
  UNION ALL
  SELECT module_id, color, start_time + 1, 0, CASE WHEN end_time > start_time THEN own_bytes END, 0
  FROM live_values
  WHERE is_temp AND size_bytes > 0
  UNION ALL
  SELECT module_id, color, end_time, 0, 0, CASE WHEN end_time > start_time THEN -own_bytes END
  FROM live_values
  WHERE is_temp AND size_bytes > 0
  UNION ALL
  SELECT
    module_id,
    color,
    end_time + 1,
    -size_bytes,
    CASE WHEN end_time > start_time THEN -own_bytes END,
    0
  FROM live_values
  WHERE is_temp AND size_bytes > 0
),
temp_sums AS (
  SELECT
    module_id,
    color,
    change_time,
    sum(coalesce(sum(live_change), 0)) OVER until_then AS most_bytes,
    sum(coalesce(sum(before_change), 0)) OVER until_then AS before_bytes,
    sum(coalesce(sum(beyond_change), 0)) OVER until_then AS beyond_bytes
  FROM temp_changes
  GROUP BY module_id, color, change_time
  WINDOW until_then AS (
    PARTITION BY module_id, color
    ORDER BY change_time
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
bounds AS (
  SELECT
    temp_sums.module_id, temp_sums.color, temp_sums.change_time,
    greatest(temp_sums.before_bytes, temp_sums.beyond_bytes) AS least_bytes,
    temp_sums.most_bytes
  FROM temp_sums
  JOIN modules ON modules.module_id = temp_sums.module_id
  WHERE temp_sums.change_time <= modules.schedule_length
),
-- The occupied bytes at each of these instants, including the step at the instant. By a window: an
-- ASOF join of 600,000 rows took five minutes.
instants AS (
  SELECT module_id, color, change_time, least_bytes, most_bytes, NULL AS occupied_temp_bytes
  FROM bounds
  UNION ALL
  SELECT module_id, color, start_time, NULL, NULL, occupied_temp_bytes
  FROM occupancy_steps
),
held AS (
  SELECT
    module_id,
    color,
    change_time,
    least_bytes,
    most_bytes,
    coalesce(
      last_value(occupied_temp_bytes IGNORE NULLS) OVER (
        PARTITION BY module_id, color
        ORDER BY change_time, least_bytes IS NOT NULL
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      0
    ) AS occupied_temp_bytes
  FROM instants
)
SELECT
  occupied_peaks.module_id,
  'memory space ' || occupied_peaks.color || ': peak ' || occupied_peaks.occupied_temp_bytes
    || ' at ' || occupied_peaks.peak_time || ', largest step '
    || coalesce(maxima.occupied_temp_bytes, 0) || ' at ' || coalesce(maxima.peak_time, 0)
    AS finding
FROM occupied_peaks
JOIN modules ON modules.module_id = occupied_peaks.module_id
LEFT JOIN maxima
  ON maxima.module_id = occupied_peaks.module_id
  AND maxima.color = occupied_peaks.color
WHERE modules.format_era NOT IN ('L', 'M')
  AND (
    occupied_peaks.occupied_temp_bytes <> coalesce(maxima.occupied_temp_bytes, 0)
    OR occupied_peaks.peak_time IS DISTINCT FROM coalesce(maxima.peak_time, 0)
  )
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
  'memory space ' || allocations.color || ': no peak, and no reason why it is unknown' AS finding
FROM allocations
JOIN modules ON modules.module_id = allocations.module_id
ANTI JOIN occupied_peaks
  ON occupied_peaks.module_id = allocations.module_id
  AND occupied_peaks.color = allocations.color
WHERE modules.peak_unknown_reason IS NULL
GROUP BY modules.module_id, allocations.color
UNION ALL
SELECT
  modules.module_id,
  'memory space ' || occupied_peaks.color || ': a peak, which is unknown: '
    || modules.peak_unknown_reason AS finding
FROM modules
JOIN occupied_peaks ON occupied_peaks.module_id = modules.module_id
WHERE modules.peak_unknown_reason IS NOT NULL
UNION ALL
SELECT DISTINCT
  occupancy_steps.module_id,
  'memory space ' || occupancy_steps.color || ': steps without a peak' AS finding
FROM occupancy_steps
ANTI JOIN occupied_peaks
  ON occupied_peaks.module_id = occupancy_steps.module_id
  AND occupied_peaks.color = occupancy_steps.color
UNION ALL
SELECT
  occupied_peaks.module_id,
  'memory space ' || occupied_peaks.color || ': live values have '
    || coalesce(most.live_bytes, 0) || ' bytes at the most, stored '
    || coalesce(occupied_peaks.naive_live_bytes::VARCHAR, 'NULL') AS finding
FROM occupied_peaks
JOIN modules ON modules.module_id = occupied_peaks.module_id
LEFT JOIN most
  ON most.module_id = occupied_peaks.module_id
  AND most.color = occupied_peaks.color
WHERE modules.format_era NOT IN ('L', 'M')
  AND occupied_peaks.naive_live_bytes IS DISTINCT FROM greatest(coalesce(most.live_bytes, 0), 0)
UNION ALL
SELECT
  held.module_id,
  'memory space ' || held.color || ': at ' || held.change_time || ' ' || held.occupied_temp_bytes
    || ' bytes, where values of ' || held.least_bytes || ' to ' || held.most_bytes
    || ' bytes are live' AS finding
FROM held
WHERE held.occupied_temp_bytes NOT BETWEEN held.least_bytes AND held.most_bytes
ORDER BY module_id, finding;
