-- One row per value that holds bytes at the peak, every byte counted once.
-- A temp allocation's live values share bytes: in order of offset, larger first, each holds what
-- no earlier one covers, so the sum is the union. Ends are 128 bits wide: sizes come near 2^63.
CREATE OR REPLACE VIEW peak_values AS
WITH live_temps AS (
  SELECT
    values.module_id,
    allocations.color,
    values.allocation_index,
    values.value_id,
    values.size_bytes,
    values.offset_bytes::HUGEINT AS begin_bytes,
    values.offset_bytes::HUGEINT + values.size_bytes AS end_bytes
  FROM values
  JOIN allocations
    ON allocations.module_id = values.module_id
    AND allocations.allocation_index = values.allocation_index
  JOIN occupied_peaks
    ON occupied_peaks.module_id = allocations.module_id
    AND occupied_peaks.color = allocations.color
  JOIN live_ranges
    ON live_ranges.module_id = values.module_id
    AND live_ranges.value_id = values.value_id
  WHERE allocations.kind = 'temp'
    AND live_ranges.start_time <= occupied_peaks.peak_time
    AND live_ranges.end_time >= occupied_peaks.peak_time
),
covered_temps AS (
  SELECT
    live_temps.*,
    greatest(
      begin_bytes,
      coalesce(
        max(end_bytes) OVER (
          PARTITION BY module_id, allocation_index
          ORDER BY begin_bytes, size_bytes DESC, value_id
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        begin_bytes
      )
    ) AS covered_bytes
  FROM live_temps
),
representatives AS (
  SELECT
    values.module_id,
    values.allocation_index,
    values.value_id,
    row_number() OVER (
      PARTITION BY values.module_id, values.allocation_index
      ORDER BY values.size_bytes DESC, values.value_id
    ) AS place
  FROM values
  JOIN allocations
    ON allocations.module_id = values.module_id
    AND allocations.allocation_index = values.allocation_index
  WHERE allocations.kind NOT IN ('temp', 'thread_local')
    AND values.offset_bytes = 0
)
SELECT
  covered_temps.module_id,
  covered_temps.color,
  covered_temps.allocation_index,
  'temp' AS allocation_kind,
  covered_temps.value_id,
  (covered_temps.end_bytes - covered_temps.covered_bytes)::BIGINT AS held_bytes
FROM covered_temps
WHERE covered_temps.end_bytes > covered_temps.covered_bytes
UNION ALL
SELECT
  allocations.module_id,
  allocations.color,
  allocations.allocation_index,
  allocations.kind AS allocation_kind,
  representatives.value_id,
  allocations.size_bytes AS held_bytes
FROM allocations
JOIN occupied_peaks
  ON occupied_peaks.module_id = allocations.module_id
  AND occupied_peaks.color = allocations.color
LEFT JOIN representatives
  ON representatives.module_id = allocations.module_id
  AND representatives.allocation_index = allocations.allocation_index
  AND representatives.place = 1
WHERE allocations.kind NOT IN ('temp', 'thread_local')
  AND allocations.size_bytes > 0;
COMMENT ON VIEW peak_values IS
  'One row per value that holds bytes at the peak of its memory space (memory_figures.peak_time), every byte counted once: held_bytes of a module and color add up to memory_figures.peak_bytes. Nothing for a module whose peak is unknown. Key: module_id, allocation_index, value_id.';
COMMENT ON COLUMN peak_values.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN peak_values.color IS 'Memory space of the allocation: allocations.color.';
COMMENT ON COLUMN peak_values.allocation_index IS 'The allocation: allocations.allocation_index.';
COMMENT ON COLUMN peak_values.allocation_kind IS 'Role of the allocation: allocations.kind, never thread_local.';
COMMENT ON COLUMN peak_values.value_id IS
  'The value: values.value_id. For an allocation that is not temp, and so held for the whole run, the value that stands for it: the largest at offset 0, lowest value_id; NULL if the dump lists no such value.';
COMMENT ON COLUMN peak_values.held_bytes IS
  'Bytes of the allocation that count for this value [bytes]: the whole allocation if it is not temp; in a temp allocation the part of the value''s bytes that no live value before it covers, in order of offset_bytes, size_bytes (largest first), value_id.';
