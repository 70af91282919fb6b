-- title: Peaks without a value are within the limits from other tables
-- group: store
--
-- peak_savings is computed when a module is stored. Saving and remaining peak must add up to the
-- peak; a value saves at most what it holds, halved between half of the saving and half of what it
-- holds, and every value of peak_values in temp allocations has a row, unless ingest reported that
-- it was not computed. The lower bound is at most the saving, or unknown with a reason, and the
-- part of the backward pass agrees with value_sources. At the instant that becomes the peak, the
-- new height is the occupied bytes minus those of the value alone: all of its bytes inside its live
-- range, none if no value with the same bytes is live, and some at a handover. Contexts of
-- asynchronous calls may share bytes with each other (overlap), so one of them may free fewer, by
-- what the others that are live have of its bytes. None of the four highest peaks without a live
-- value of these bytes may be above it. Lines and ops have the names and the bytes that
-- attributed_peak_values gives to values of temp allocations.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH stored AS (
  SELECT
    peak_savings.module_id, peak_savings.color, peak_savings.what,
    coalesce(peak_savings.name, 'value ' || peak_savings.value_id, 'nothing') AS name,
    peak_savings.value_id, peak_savings.held_bytes, peak_savings.saving_bytes,
    peak_savings.half_saving_bytes, peak_savings.peak_bytes_without, peak_savings.peak_time_without,
    peak_savings.backward_bytes, peak_savings.saving_form, peak_savings.low_saving_bytes,
    peak_savings.low_unknown_reason, peak_savings.kept_bytes, memory_figures.peak_bytes,
    peak_savings.peak_bytes_without - memory_figures.fixed_bytes AS without_bytes
  FROM peak_savings
  LEFT JOIN memory_figures
    ON memory_figures.module_id = peak_savings.module_id
    AND memory_figures.color = peak_savings.color
),
instants AS (
  SELECT
    stored.module_id, stored.color, stored.peak_time_without AS instant,
    NULL AS occupied_temp_bytes
  FROM stored
  GROUP BY stored.module_id, stored.color, stored.peak_time_without
  UNION ALL
  SELECT module_id, color, start_time, occupied_temp_bytes
  FROM occupancy_steps
),
heights AS (
  SELECT
    instants.module_id, instants.color, instants.instant,
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
-- Values with the same bytes as a value that has a row, including that value.
same_bytes AS (
  SELECT
    stored.module_id, stored.value_id, others.value_id AS other_id, others.size_bytes,
    live_ranges.start_time, live_ranges.end_time
  FROM stored
  JOIN "values"
    ON "values".module_id = stored.module_id
    AND "values".value_id = stored.value_id
  JOIN "values" AS others
    ON others.module_id = "values".module_id
    AND others.allocation_index = "values".allocation_index
    AND others.offset_bytes = "values".offset_bytes
    AND others.size_bytes = "values".size_bytes
  JOIN live_ranges
    ON live_ranges.module_id = others.module_id
    AND live_ranges.value_id = others.value_id
  WHERE stored.what = 'value'
),
scratch AS (
  SELECT
    "values".module_id, "values".value_id, "values".allocation_index,
    "values".offset_bytes::HUGEINT AS begin_bytes,
    "values".offset_bytes::HUGEINT + "values".size_bytes AS end_bytes,
    live_ranges.start_time, live_ranges.end_time
  FROM "values"
  SEMI JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
    AND (instructions.opcode GLOB '*-start' OR instructions.opcode GLOB '*-update')
    AND instructions.opcode <> 'copy-start'
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  WHERE "values".shape_index GLOB '{[2-9]*' OR "values".shape_index GLOB '{1[0-9]*'
),
-- Bytes of a context that others have too at the instant that becomes the peak, at the most.
shared AS (
  SELECT
    stored.module_id, stored.value_id,
    sum(
      least(scratch.end_bytes, others.end_bytes) - greatest(scratch.begin_bytes, others.begin_bytes)
    ) AS shared_bytes
  FROM stored
  JOIN scratch
    ON scratch.module_id = stored.module_id
    AND scratch.value_id = stored.value_id
  JOIN scratch AS others
    ON others.module_id = scratch.module_id
    AND others.allocation_index = scratch.allocation_index
    AND others.value_id <> scratch.value_id
    AND others.begin_bytes < scratch.end_bytes
    AND others.end_bytes > scratch.begin_bytes
    AND others.start_time <= stored.peak_time_without
    AND others.end_time >= stored.peak_time_without
  WHERE stored.what = 'value'
  GROUP BY stored.module_id, stored.value_id
),
at_instant AS (
  SELECT
    stored.module_id, stored.color, stored.name, stored.peak_time_without, stored.without_bytes,
    any_value(heights.occupied_temp_bytes) AS occupied_temp_bytes,
    any_value(same_bytes.size_bytes) AS size_bytes,
    greatest(
      any_value(same_bytes.size_bytes) - coalesce(any_value(shared.shared_bytes), 0), 0
    ) AS own_bytes,
    bool_or(
      same_bytes.start_time <= stored.peak_time_without
      AND stored.peak_time_without <= same_bytes.end_time
    ) AS is_live,
    bool_or(
      same_bytes.other_id = stored.value_id
      AND same_bytes.start_time < stored.peak_time_without
      AND stored.peak_time_without < same_bytes.end_time
    ) AS is_inside
  FROM stored
  JOIN heights
    ON heights.module_id = stored.module_id
    AND heights.color = stored.color
    AND heights.instant = stored.peak_time_without
    AND heights.is_asked
  JOIN same_bytes
    ON same_bytes.module_id = stored.module_id
    AND same_bytes.value_id = stored.value_id
  LEFT JOIN shared
    ON shared.module_id = stored.module_id
    AND shared.value_id = stored.value_id
  WHERE stored.what = 'value'
  GROUP BY
    stored.module_id, stored.color, stored.name, stored.peak_time_without, stored.without_bytes
),
higher AS (
  SELECT
    stored.module_id, stored.color, stored.name, stored.without_bytes, peaks.peak_time,
    peaks.occupied_temp_bytes
  FROM stored
  JOIN peaks
    ON peaks.module_id = stored.module_id
    AND peaks.color = stored.color
    AND peaks.occupied_temp_bytes > stored.without_bytes
  WHERE stored.what = 'value'
    AND peaks.peak_ordinal <= 4
    AND NOT EXISTS (
      SELECT 1
      FROM same_bytes
      WHERE same_bytes.module_id = stored.module_id
        AND same_bytes.value_id = stored.value_id
        AND same_bytes.start_time <= peaks.peak_time
        AND peaks.peak_time <= same_bytes.end_time
    )
),
held AS (
  SELECT
    peak_values.module_id, peak_values.color, peak_values.value_id, peak_values.held_bytes,
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
    held.module_id, held.color, held.value_id,
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
    held.held_bytes, held.backward_bytes
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
  stored.module_id,
  'memory space ' || stored.color || ': ' || stored.what || ' ' || stored.name || ' holds '
    || stored.held_bytes || ' and saves ' || stored.saving_bytes || ', halved '
    || stored.half_saving_bytes || ', which leaves '
    || stored.peak_bytes_without || ' of a peak of ' || coalesce(stored.peak_bytes::VARCHAR, 'NULL')
    AS finding
FROM stored
WHERE stored.saving_bytes < 0
  OR stored.saving_bytes > stored.held_bytes
  OR stored.held_bytes <= 0
  OR stored.half_saving_bytes NOT BETWEEN stored.saving_bytes // 2 AND least(
    stored.saving_bytes, (stored.held_bytes + 1) // 2
  )
  OR stored.saving_bytes + stored.peak_bytes_without IS DISTINCT FROM stored.peak_bytes
UNION ALL
SELECT
  stored.module_id,
  'memory space ' || stored.color || ': ' || stored.what || ' ' || stored.name || ' saves '
    || coalesce(stored.low_saving_bytes::VARCHAR, 'NULL') || ' to ' || stored.saving_bytes
    || ' by ' || coalesce(stored.saving_form, 'NULL') || ', '
    || coalesce(stored.low_unknown_reason, 'known') || ', '
    || coalesce(stored.kept_bytes::VARCHAR, 'NULL') || ' kept'
    AS finding
FROM stored
WHERE stored.low_saving_bytes > stored.saving_bytes
  OR stored.kept_bytes < 0
  OR (stored.low_saving_bytes IS NULL) <> (stored.low_unknown_reason IS NOT NULL)
  OR (stored.low_saving_bytes IS NULL) <> (stored.saving_form IS NULL)
  OR (stored.low_saving_bytes IS NULL) <> (stored.kept_bytes IS NULL)
UNION ALL
SELECT
  coalesce(named_sums.module_id, stored.module_id) AS module_id,
  'memory space ' || coalesce(named_sums.color, stored.color) || ': '
    || coalesce(named_sums.what, stored.what) || ' ' || coalesce(named_sums.name, stored.name)
    || ' holds ' || coalesce(named_sums.held_bytes, 0) || ' bytes at the peak, '
    || coalesce(stored.held_bytes, 0) || ' in its saving; of the backward pass '
    || coalesce(named_sums.backward_bytes, 0) || ', ' || coalesce(stored.backward_bytes, 0)
    AS finding
FROM named_sums
FULL JOIN stored
  ON stored.module_id = named_sums.module_id
  AND stored.color = named_sums.color
  AND stored.what = named_sums.what
  AND stored.name = named_sums.name
WHERE (
    named_sums.held_bytes IS DISTINCT FROM stored.held_bytes
    OR named_sums.backward_bytes IS DISTINCT FROM stored.backward_bytes
  )
  AND NOT EXISTS (
    SELECT 1
    FROM diagnostics
    WHERE diagnostics.module_id = stored.module_id
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
    WHEN at_instant.is_inside THEN at_instant.own_bytes
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
