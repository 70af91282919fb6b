-- The instants other than the peak that the variables peak and step select.
CREATE OR REPLACE VIEW asked_instants AS
WITH instants AS (
  SELECT
    occupied_peaks.module_id, occupied_peaks.color,
    max(
      CASE
        WHEN getvariable('step')::BIGINT IS NOT NULL THEN getvariable('step')::BIGINT
        WHEN peaks.peak_ordinal = coalesce(getvariable('peak')::BIGINT, 1) THEN peaks.peak_time
      END
    ) AS instant_time,
    max(peaks.peak_ordinal) AS last_peak
  FROM occupied_peaks
  LEFT JOIN peaks
    ON peaks.module_id = occupied_peaks.module_id
    AND peaks.color = occupied_peaks.color
  WHERE getvariable('step')::BIGINT IS NOT NULL
    OR coalesce(getvariable('peak')::BIGINT, 1) <> 1
  GROUP BY occupied_peaks.module_id, occupied_peaks.color
),
steps AS (
  SELECT
    instants.module_id, instants.color, instants.instant_time, instants.last_peak,
    occupancy_steps.occupied_temp_bytes,
    row_number() OVER (
      PARTITION BY instants.module_id, instants.color
      ORDER BY occupancy_steps.start_time DESC NULLS LAST
    ) AS place
  FROM instants
  LEFT JOIN occupancy_steps
    ON occupancy_steps.module_id = instants.module_id
    AND occupancy_steps.color = instants.color
    AND occupancy_steps.start_time <= instants.instant_time
)
SELECT
  steps.module_id, steps.color, steps.instant_time,
  memory_sums.fixed_bytes + coalesce(steps.occupied_temp_bytes, 0) AS occupied_bytes,
  CASE
    WHEN modules.format_era = 'M' THEN 'an out-of-memory message has only the peak'
    WHEN modules.format_era = 'L' THEN 'a log''s sums have only the peak'
    WHEN steps.instant_time IS NULL THEN 'it has no such peak, the last is ' || steps.last_peak
    WHEN steps.instant_time < 0 OR steps.instant_time > modules.schedule_length
      THEN 'its instants are 0 to ' || modules.schedule_length
  END AS missing_reason
FROM steps
JOIN modules ON modules.module_id = steps.module_id
JOIN memory_sums
  ON memory_sums.module_id = steps.module_id
  AND memory_sums.color = steps.color
WHERE steps.place = 1;
COMMENT ON VIEW asked_instants IS
  'One row per module with a known peak and memory space, with the selected instant: that of the peak numbered by the variable peak (peaks.peak_ordinal), or the variable step. No rows if neither is set or peak is 1: then it is the peak. Key: module_id, color.';
COMMENT ON COLUMN asked_instants.instant_time IS 'The instant [program order]; NULL if there is no such peak.';
COMMENT ON COLUMN asked_instants.occupied_bytes IS
  'Bytes occupied then, including those held for the whole run [bytes]: memory_sums.fixed_bytes and occupancy_steps.occupied_temp_bytes.';
COMMENT ON COLUMN asked_instants.missing_reason IS 'Why there is no such instant; NULL if there is.';
