-- title: The memory-usage-report has the totals of the allocations
-- group: store
--
-- Format section 9.1: the report sums the same allocations, per memory space or in total, and its
-- totals are exact. A module without allocations has nothing to compare.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH sums AS (
  SELECT allocations.module_id, allocations.color, sum(allocations.size_bytes) AS total_bytes
  FROM allocations
  GROUP BY allocations.module_id, allocations.color
  UNION ALL
  SELECT allocations.module_id, NULL AS color, sum(allocations.size_bytes) AS total_bytes
  FROM allocations
  GROUP BY allocations.module_id
),
compared AS (
  SELECT
    reported_sums.module_id, reported_sums.color, reported_sums.total_bytes AS reported_bytes,
    wrapped_int64(coalesce(sums.total_bytes, 0)) AS total_bytes
  FROM reported_sums
  SEMI JOIN allocations ON allocations.module_id = reported_sums.module_id
  LEFT JOIN sums
    ON sums.module_id = reported_sums.module_id
    AND sums.color IS NOT DISTINCT FROM reported_sums.color
)
SELECT
  compared.module_id,
  coalesce('memory space ' || compared.color, 'all memory spaces') || ': the report has '
    || compared.reported_bytes || ' bytes, the allocations ' || compared.total_bytes AS finding
FROM compared
WHERE compared.reported_bytes <> compared.total_bytes
ORDER BY compared.module_id, finding;
