-- Values that hold bytes at the peak, or at the instant that the variables peak and step select.
CREATE OR REPLACE VIEW asked_peak_values AS
WITH instants AS (
  SELECT
    asked_instants.module_id, asked_instants.color, asked_instants.instant_time,
    asked_instants.missing_reason
  FROM asked_instants
),
live AS (
  SELECT
    temp_values.module_id, temp_values.color, temp_values.allocation_index, temp_values.value_id,
    temp_values.size_bytes, temp_values.begin_bytes, temp_values.end_bytes
  FROM instants
  JOIN temp_values
    ON temp_values.module_id = instants.module_id
    AND temp_values.color = instants.color
  WHERE temp_values.start_time <= instants.instant_time
    AND temp_values.end_time >= instants.instant_time
    AND instants.missing_reason IS NULL
),
covered AS (
  SELECT
    live.module_id, live.color, live.allocation_index, live.value_id, live.end_bytes,
    greatest(
      live.begin_bytes,
      coalesce(
        max(live.end_bytes) OVER (
          PARTITION BY live.module_id, live.allocation_index
          ORDER BY live.begin_bytes, live.size_bytes DESC, live.value_id
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        live.begin_bytes
      )
    ) AS begin_bytes
  FROM live
),
others AS (
  SELECT
    covered.module_id, covered.color, covered.allocation_index,
    'temp' AS allocation_kind,
    covered.value_id,
    covered.end_bytes - covered.begin_bytes AS held_bytes
  FROM covered
  WHERE covered.end_bytes > covered.begin_bytes
  UNION ALL
  -- Held for the whole run, so the same at every instant.
  SELECT
    peak_values.module_id, peak_values.color, peak_values.allocation_index,
    peak_values.allocation_kind, peak_values.value_id, peak_values.held_bytes
  FROM instants
  JOIN peak_values
    ON peak_values.module_id = instants.module_id
    AND peak_values.color = instants.color
  WHERE peak_values.allocation_kind <> 'temp'
    AND instants.missing_reason IS NULL
)
SELECT
  peak_values.module_id, peak_values.color, peak_values.allocation_index,
  peak_values.allocation_kind, peak_values.value_id, peak_values.held_bytes
FROM peak_values
WHERE getvariable('step')::BIGINT IS NULL
  AND coalesce(getvariable('peak')::BIGINT, 1) = 1
UNION ALL
SELECT
  others.module_id, others.color, others.allocation_index, others.allocation_kind, others.value_id,
  others.held_bytes
FROM others;
COMMENT ON VIEW asked_peak_values IS
  'Rows of peak_values; with the variable step, or peak other than 1, values held at that instant (asked_instants) instead, counted in the same way. Key: module_id, allocation_index, value_id.';
COMMENT ON COLUMN asked_peak_values.held_bytes IS 'Bytes at the instant that count for this value, each byte once: as peak_values.held_bytes [bytes].';
