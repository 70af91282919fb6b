-- title: Values at the peak hold every byte once and add up to the peak
-- group: store
--
-- peak_values is computed when a module is stored; here it is computed again. A temp allocation's
-- live values share bytes: in order of offset, larger first, each holds what no earlier one covers,
-- so the sum is the union. Ends have 128 bits: sizes can be close to 2^63. held_bytes of a module
-- and memory space add up to memory_figures.peak_bytes. For an out-of-memory message only that sum
-- is checked.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH live_temps AS (
  SELECT
    "values".module_id, allocations.color, "values".allocation_index, "values".value_id,
    "values".size_bytes,
    "values".offset_bytes::HUGEINT AS begin_bytes,
    "values".offset_bytes::HUGEINT + "values".size_bytes AS end_bytes
  FROM "values"
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  JOIN occupied_peaks
    ON occupied_peaks.module_id = allocations.module_id
    AND occupied_peaks.color = allocations.color
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
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
    "values".module_id, "values".allocation_index, "values".value_id,
    row_number() OVER (
      PARTITION BY "values".module_id, "values".allocation_index
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM "values"
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  WHERE allocations.kind NOT IN ('temp', 'thread_local')
    AND "values".offset_bytes = 0
),
expected AS MATERIALIZED (
  SELECT
    covered_temps.module_id, covered_temps.color, covered_temps.allocation_index,
    'temp' AS allocation_kind,
    covered_temps.value_id,
    covered_temps.end_bytes - covered_temps.covered_bytes AS held_bytes
  FROM covered_temps
  WHERE covered_temps.end_bytes > covered_temps.covered_bytes
  UNION ALL
  SELECT
    allocations.module_id, allocations.color, allocations.allocation_index,
    allocations.kind AS allocation_kind, representatives.value_id,
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
    AND allocations.size_bytes > 0
),
held AS (
  SELECT peak_values.module_id, peak_values.color, sum(peak_values.held_bytes) AS held_bytes
  FROM peak_values
  GROUP BY peak_values.module_id, peak_values.color
),
of_dumps AS (
  SELECT peak_values.*
  FROM peak_values
  JOIN modules ON modules.module_id = peak_values.module_id
  WHERE modules.format_era NOT IN ('L', 'M')
),
differences AS (
  SELECT module_id, color, allocation_index, allocation_kind, value_id, held_bytes, 'found' AS what
  FROM (FROM of_dumps EXCEPT ALL FROM expected)
  UNION ALL
  SELECT module_id, color, allocation_index, allocation_kind, value_id, held_bytes, 'expected'
  FROM (FROM expected EXCEPT ALL FROM of_dumps)
)
SELECT
  memory_figures.module_id,
  'memory space ' || memory_figures.color || ': peak ' || memory_figures.peak_bytes
    || ', held ' || coalesce(held.held_bytes, 0) AS finding
FROM memory_figures
LEFT JOIN held
  ON held.module_id = memory_figures.module_id
  AND held.color = memory_figures.color
WHERE memory_figures.peak_bytes <> coalesce(held.held_bytes, 0)
UNION ALL
SELECT
  differences.module_id,
  'memory space ' || differences.color || ': ' || differences.what || ' that '
    || coalesce('value ' || differences.value_id, 'no value') || ' holds '
    || differences.held_bytes || ' bytes of ' || differences.allocation_kind || ' allocation '
    || differences.allocation_index AS finding
FROM differences
ORDER BY module_id, finding;
