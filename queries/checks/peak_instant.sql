-- title: The printed peak is at the instant that XLA chooses
-- group: store
--
-- Format section 6.2: the first instant with the largest sum, over the values that are live then or
-- at the instant before, of the size of the whole shape of their instruction; 0 if none has a
-- size. Not checked if a shape is unknown or the sum exceeds 64 bits.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH sizes AS (
  SELECT
    live_ranges.module_id, live_ranges.start_time, live_ranges.end_time, shapes.logical_bytes
  FROM live_ranges
  JOIN modules ON modules.module_id = live_ranges.module_id
  LEFT JOIN instructions
    ON instructions.module_id = live_ranges.module_id
    AND instructions.instruction_name = live_ranges.instruction_name
  LEFT JOIN shapes ON shapes.shape = instructions.shape
  WHERE modules.reported_peak_status = 'printed'
),
known_modules AS (
  SELECT sizes.module_id
  FROM sizes
  GROUP BY sizes.module_id
  HAVING count(*) = count(sizes.logical_bytes)
    AND sum(sizes.logical_bytes) < 9223372036854775807
),
changes AS (
  SELECT module_id, start_time AS change_time, logical_bytes FROM sizes
  UNION ALL
  SELECT module_id, end_time + 2 AS change_time, -logical_bytes AS logical_bytes FROM sizes
),
sums AS (
  SELECT
    changes.module_id, changes.change_time,
    sum(sum(changes.logical_bytes)) OVER (
      PARTITION BY changes.module_id
      ORDER BY changes.change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS live_bytes
  FROM changes
  SEMI JOIN known_modules ON known_modules.module_id = changes.module_id
  GROUP BY changes.module_id, changes.change_time
),
maxima AS (
  SELECT
    sums.module_id,
    max(sums.live_bytes) AS most_bytes,
    arg_max(sums.change_time, (sums.live_bytes, -sums.change_time)) AS first_time
  FROM sums
  GROUP BY sums.module_id
)
SELECT
  modules.module_id,
  'expected the peak at ' || CASE WHEN maxima.most_bytes > 0 THEN maxima.first_time ELSE 0 END
    || ', found ' || modules.reported_peak_time AS finding
FROM maxima
JOIN modules ON modules.module_id = maxima.module_id
WHERE modules.reported_peak_time
  <> CASE WHEN maxima.most_bytes > 0 THEN maxima.first_time ELSE 0 END
ORDER BY modules.module_id;
