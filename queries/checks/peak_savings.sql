-- title: What a peak would be without a value is within what other tables allow
-- group: overview
--
-- peak_savings is computed when a module is stored. What it says must add up to the peak; a value
-- saves no more than it holds, halved between half of that and half of what it holds, and all that peak_values has in temp allocations is there, unless
-- ingest has reported that it was not computed. The low end is no more than the saving, known or
-- unknown with a reason, and what the backward pass makes is what value_sources says. At the instant that becomes the peak, the occupied
-- bytes less those of the value alone are the new height: all of its bytes inside its life, none
-- where no value with the same bytes is live, and some where bytes are handed over. No other of
-- the four highest peaks at which none with these bytes is live may be above it. Lines and ops have
-- the names that attributed_peak_values gives to values of temp allocations, and hold what these do.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH told AS (
  SELECT
    peak_savings.module_id,
    peak_savings.color,
    peak_savings.what,
    coalesce(peak_savings.name, 'value ' || peak_savings.value_id, 'nothing') AS name,
    peak_savings.value_id,
    peak_savings.held_bytes,
    peak_savings.saving_bytes,
    peak_savings.half_saving_bytes,
    peak_savings.peak_bytes_without,
    peak_savings.peak_time_without,
    peak_savings.backward_bytes,
    peak_savings.saving_form,
    peak_savings.low_saving_bytes,
    peak_savings.low_unknown_reason,
    peak_savings.kept_bytes,
    memory_figures.peak_bytes,
    peak_savings.peak_bytes_without - memory_figures.fixed_bytes AS without_bytes
  FROM peak_savings
  LEFT JOIN memory_figures
    ON memory_figures.module_id = peak_savings.module_id
    AND memory_figures.color = peak_savings.color
),
instants AS (
  SELECT
    told.module_id,
    told.color,
    told.peak_time_without AS instant,
    NULL AS occupied_temp_bytes
  FROM told
  GROUP BY told.module_id, told.color, told.peak_time_without
  UNION ALL
  SELECT module_id, color, start_time, occupied_temp_bytes
  FROM occupancy_steps
),
heights AS (
  SELECT
    instants.module_id,
    instants.color,
    instants.instant,
    instants.occupied_temp_bytes IS NULL AS is_asked,
    coalesce(
      last_value(instants.occupied_temp_bytes IGNORE NULLS) OVER (
        PARTITION BY instants.module_id, instants.color
        ORDER BY instants.instant, instants.occupied_temp_bytes IS NULL
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      0
    ) AS occupied_temp_bytes
  FROM instants
),
-- Values with the same bytes as a value of which there is a row, that value included.
same_bytes AS (
  SELECT
    told.module_id,
    told.value_id,
    others.value_id AS other_id,
    others.size_bytes,
    live_ranges.start_time,
    live_ranges.end_time
  FROM told
  JOIN "values"
    ON "values".module_id = told.module_id
    AND "values".value_id = told.value_id
  JOIN "values" AS others
    ON others.module_id = "values".module_id
    AND others.allocation_index = "values".allocation_index
    AND others.offset_bytes = "values".offset_bytes
    AND others.size_bytes = "values".size_bytes
  JOIN live_ranges
    ON live_ranges.module_id = others.module_id
    AND live_ranges.value_id = others.value_id
  WHERE told.what = 'value'
),
at_instant AS (
  SELECT
    told.module_id,
    told.color,
    told.name,
    told.peak_time_without,
    told.without_bytes,
    any_value(heights.occupied_temp_bytes) AS occupied_temp_bytes,
    any_value(same_bytes.size_bytes) AS size_bytes,
    bool_or(
      same_bytes.start_time <= told.peak_time_without
      AND told.peak_time_without <= same_bytes.end_time
    ) AS is_live,
    bool_or(
      same_bytes.other_id = told.value_id
      AND same_bytes.start_time < told.peak_time_without
      AND told.peak_time_without < same_bytes.end_time
    ) AS is_inside
  FROM told
  JOIN heights
    ON heights.module_id = told.module_id
    AND heights.color = told.color
    AND heights.instant = told.peak_time_without
    AND heights.is_asked
  JOIN same_bytes
    ON same_bytes.module_id = told.module_id
    AND same_bytes.value_id = told.value_id
  WHERE told.what = 'value'
  GROUP BY
    told.module_id,
    told.color,
    told.name,
    told.peak_time_without,
    told.without_bytes
),
higher AS (
  SELECT
    told.module_id,
    told.color,
    told.name,
    told.without_bytes,
    peaks.peak_time,
    peaks.occupied_temp_bytes
  FROM told
  JOIN peaks
    ON peaks.module_id = told.module_id
    AND peaks.color = told.color
    AND peaks.occupied_temp_bytes > told.without_bytes
  WHERE told.what = 'value'
    AND peaks.peak_ordinal <= 4
    AND NOT EXISTS (
      SELECT 1
      FROM same_bytes
      WHERE same_bytes.module_id = told.module_id
        AND same_bytes.value_id = told.value_id
        AND same_bytes.start_time <= peaks.peak_time
        AND peaks.peak_time <= same_bytes.end_time
    )
),
held AS (
  SELECT
    peak_values.module_id,
    peak_values.color,
    peak_values.value_id,
    peak_values.held_bytes,
    CASE WHEN value_sources.is_backward THEN peak_values.held_bytes ELSE 0 END AS backward_bytes
  FROM peak_values
  LEFT JOIN value_sources
    ON value_sources.module_id = peak_values.module_id
    AND value_sources.value_id = peak_values.value_id
  WHERE peak_values.allocation_kind = 'temp'
    AND NOT EXISTS (
      SELECT 1
      FROM diagnostics
      WHERE diagnostics.module_id = peak_values.module_id
        AND diagnostics.code = 'savings_unknown'
    )
),
named AS (
  SELECT
    held.module_id,
    held.color,
    held.value_id,
    coalesce(
      value_origin_details.relation || value_origin_details.own_source,
      peak_value_details.own_source,
      'for ' || named_uses.own_source_file || ':' || named_uses.own_source_line,
      value_origin_details.relation || value_origin_details.library_source,
      peak_value_details.library_source,
      'for ' || named_uses.library_source
    ) AS source_line,
    coalesce(
      value_origin_details.relation || value_origin_details.stripped_op_path,
      peak_value_details.stripped_op_path,
      'for ' || named_uses.stripped_op_path
    ) AS op,
    held.held_bytes,
    held.backward_bytes
  FROM held
  JOIN peak_value_details
    ON peak_value_details.module_id = held.module_id
    AND peak_value_details.value_id = held.value_id
  LEFT JOIN value_origin_details
    ON value_origin_details.module_id = held.module_id
    AND value_origin_details.value_id = held.value_id
  LEFT JOIN named_uses
    ON named_uses.module_id = held.module_id
    AND named_uses.value_id = held.value_id
),
named_sums AS (
  SELECT
    module_id, color, 'value' AS what, 'value ' || value_id AS name, held_bytes, backward_bytes
  FROM held
  UNION ALL
  SELECT
    module_id, color, 'source_line' AS what, source_line AS name,
    sum(held_bytes) AS held_bytes, sum(backward_bytes) AS backward_bytes
  FROM named
  WHERE source_line IS NOT NULL
  GROUP BY module_id, color, source_line
  UNION ALL
  SELECT
    module_id, color, 'op' AS what, op AS name,
    sum(held_bytes) AS held_bytes, sum(backward_bytes) AS backward_bytes
  FROM named
  WHERE op IS NOT NULL
  GROUP BY module_id, color, op
)
SELECT
  told.module_id,
  'memory space ' || told.color || ': ' || told.what || ' ' || told.name || ' holds '
    || told.held_bytes || ' and saves ' || told.saving_bytes || ', halved '
    || told.half_saving_bytes || ', which leaves '
    || told.peak_bytes_without || ' of a peak of ' || coalesce(told.peak_bytes::VARCHAR, 'NULL')
    AS finding
FROM told
WHERE told.saving_bytes < 0
  OR told.saving_bytes > told.held_bytes
  OR told.held_bytes <= 0
  OR told.half_saving_bytes NOT BETWEEN told.saving_bytes // 2 AND least(
    told.saving_bytes, (told.held_bytes + 1) // 2
  )
  OR told.saving_bytes + told.peak_bytes_without IS DISTINCT FROM told.peak_bytes
UNION ALL
SELECT
  told.module_id,
  'memory space ' || told.color || ': ' || told.what || ' ' || told.name || ' saves '
    || coalesce(told.low_saving_bytes::VARCHAR, 'NULL') || ' to ' || told.saving_bytes
    || ' by ' || coalesce(told.saving_form, 'NULL') || ', '
    || coalesce(told.low_unknown_reason, 'known') || ', '
    || coalesce(told.kept_bytes::VARCHAR, 'NULL') || ' kept'
    AS finding
FROM told
WHERE told.low_saving_bytes > told.saving_bytes
  OR told.kept_bytes < 0
  OR (told.low_saving_bytes IS NULL) <> (told.low_unknown_reason IS NOT NULL)
  OR (told.low_saving_bytes IS NULL) <> (told.saving_form IS NULL)
  OR (told.low_saving_bytes IS NULL) <> (told.kept_bytes IS NULL)
UNION ALL
SELECT
  coalesce(named_sums.module_id, told.module_id) AS module_id,
  'memory space ' || coalesce(named_sums.color, told.color) || ': '
    || coalesce(named_sums.what, told.what) || ' ' || coalesce(named_sums.name, told.name)
    || ' holds ' || coalesce(named_sums.held_bytes, 0) || ' bytes at the peak, '
    || coalesce(told.held_bytes, 0) || ' beside its saving; of the backward pass '
    || coalesce(named_sums.backward_bytes, 0) || ', ' || coalesce(told.backward_bytes, 0)
    AS finding
FROM named_sums
FULL JOIN told
  ON told.module_id = named_sums.module_id
  AND told.color = named_sums.color
  AND told.what = named_sums.what
  AND told.name = named_sums.name
WHERE (
    named_sums.held_bytes IS DISTINCT FROM told.held_bytes
    OR named_sums.backward_bytes IS DISTINCT FROM told.backward_bytes
  )
  AND NOT EXISTS (
    SELECT 1
    FROM diagnostics
    WHERE diagnostics.module_id = told.module_id
      AND diagnostics.code = 'savings_unknown'
  )
UNION ALL
SELECT
  at_instant.module_id,
  'memory space ' || at_instant.color || ': without ' || at_instant.name || ' '
    || at_instant.without_bytes || ' bytes at ' || at_instant.peak_time_without || ', where '
    || at_instant.occupied_temp_bytes || ' are occupied and it has ' || at_instant.size_bytes
    AS finding
FROM at_instant
WHERE at_instant.occupied_temp_bytes - at_instant.without_bytes NOT BETWEEN CASE
    WHEN at_instant.is_inside THEN at_instant.size_bytes
    ELSE 0
  END AND CASE WHEN at_instant.is_live THEN at_instant.size_bytes ELSE 0 END
UNION ALL
SELECT
  higher.module_id,
  'memory space ' || higher.color || ': without ' || higher.name || ' ' || higher.without_bytes
    || ' bytes at the most, and ' || higher.occupied_temp_bytes || ' at ' || higher.peak_time
    AS finding
FROM higher
ORDER BY module_id, finding;
