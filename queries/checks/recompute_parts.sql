-- title: Recompute parts of a stack add up to the figures of its value
-- group: store
--
-- recompute_parts and peak_savings come from the same walk through the HLO text, as parts and as
-- sums: for a value that is one stack the sums of its parts are the figures of its row, and what is
-- recomputed at the lower bound is also recomputed at the upper bound.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH sums AS (
  SELECT
    parts.module_id, parts.written_by,
    min(parts.saving_form) AS saving_form,
    CASE
      WHEN count(*) FILTER (
        WHERE parts.part_kind = 'again' AND parts.operation_count IS NULL
      ) = 0
        THEN coalesce(sum(parts.operation_count) FILTER (WHERE parts.part_kind = 'again'), 0)
    END AS low_operation_count,
    CASE
      WHEN count(*) FILTER (
        WHERE parts.part_kind = 'all_again' AND parts.operation_count IS NULL
      ) = 0
        THEN sum(parts.operation_count) FILTER (WHERE parts.part_kind = 'all_again')
    END AS operation_count,
    coalesce(sum(parts.kept_bytes), 0) AS kept_bytes
  FROM recompute_parts AS parts
  GROUP BY parts.module_id, parts.written_by
)
SELECT
  savings.module_id,
  'value ' || savings.value_id || ', a stack of ' || origins.written_by || ': kept '
    || coalesce(savings.kept_bytes::VARCHAR, 'NULL') || ', operations '
    || coalesce(savings.low_operation_count::VARCHAR, 'NULL') || ' to '
    || coalesce(savings.operation_count::VARCHAR, 'NULL') || '; its parts have '
    || coalesce(sums.kept_bytes::VARCHAR, 'NULL') || ', '
    || coalesce(sums.low_operation_count::VARCHAR, 'NULL') || ', '
    || coalesce(sums.operation_count::VARCHAR, 'NULL') AS finding
FROM peak_savings AS savings
JOIN value_origins AS origins
  ON origins.module_id = savings.module_id
  AND origins.value_id = savings.value_id
LEFT JOIN sums
  ON sums.module_id = origins.module_id
  AND sums.written_by = origins.written_by
WHERE savings.what = 'value'
  AND savings.saving_form IS NOT NULL
  AND origins.origin_kind = 'stacked'
  AND origins.slice_count IS NOT NULL
  AND (
    sums.saving_form IS DISTINCT FROM savings.saving_form
    OR sums.kept_bytes IS DISTINCT FROM savings.kept_bytes
    OR sums.low_operation_count IS DISTINCT FROM savings.low_operation_count
    OR sums.operation_count IS DISTINCT FROM savings.operation_count
  )
UNION ALL
SELECT
  parts.module_id,
  'part ' || parts.part_index || ' of ' || parts.written_by
    || ' is computed again at the low end alone' AS finding
FROM recompute_parts AS parts
WHERE parts.part_kind = 'again'
  AND NOT EXISTS (
    SELECT 1
    FROM recompute_parts AS others
    WHERE others.module_id = parts.module_id
      AND others.written_by = parts.written_by
      AND others.part_index = parts.part_index
      AND others.part_kind = 'all_again'
  )
ORDER BY module_id, finding;
