-- title: The stored sums of allocations are those of the allocations
-- group: store
--
-- memory_sums is computed when a module is stored; here each figure is computed again, from the
-- kinds of allocation that count in it. An out-of-memory message prints sums without allocations.
-- If the allocations are not those of one whole program (format section 8), the sums are NULL.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH kinds AS (
  SELECT
    unnest(
      [
        'argument', 'argument', 'output', 'output', 'alias', 'temp', 'constant', 'thread_local',
        'fixed', 'fixed', 'fixed', 'fixed'
      ]
    ) AS figure,
    unnest(
      [
        'parameter', 'donated_parameter', 'output', 'donated_parameter', 'donated_parameter',
        'temp', 'constant', 'thread_local', 'parameter', 'donated_parameter', 'output', 'constant'
      ]
    ) AS kind
),
expected AS (
  SELECT
    allocations.module_id, allocations.color, kinds.figure,
    sum(allocations.size_bytes) AS figure_bytes
  FROM allocations
  JOIN kinds ON kinds.kind = allocations.kind
  GROUP BY allocations.module_id, allocations.color, kinds.figure
  UNION ALL
  SELECT
    allocations.module_id, allocations.color,
    'total' AS figure,
    sum(allocations.size_bytes) AS figure_bytes
  FROM allocations
  GROUP BY allocations.module_id, allocations.color
),
stored AS (
  SELECT
    memory_sums.module_id, memory_sums.color,
    unnest(
      ['total', 'argument', 'output', 'alias', 'temp', 'constant', 'thread_local', 'fixed']
    ) AS figure,
    unnest(
      [
        total_bytes, argument_bytes, output_bytes, alias_bytes, temp_bytes, constant_bytes,
        thread_local_bytes, fixed_bytes
      ]
    ) AS figure_bytes
  FROM memory_sums
  JOIN modules ON modules.module_id = memory_sums.module_id
  WHERE modules.format_era NOT IN ('L', 'M')
)
SELECT
  coalesce(expected.module_id, stored.module_id) AS module_id,
  'memory space ' || coalesce(expected.color, stored.color) || ': '
    || coalesce(expected.figure, stored.figure) || ' expected '
    || coalesce(expected.figure_bytes::VARCHAR, 'nothing') || ', found '
    || coalesce(stored.figure_bytes::VARCHAR, 'no row') AS finding
FROM expected
FULL JOIN stored
  ON stored.module_id = expected.module_id
  AND stored.color = expected.color
  AND stored.figure = expected.figure
-- A figure without allocations of its kinds is 0.
WHERE stored.figure_bytes IS DISTINCT FROM CASE
    WHEN expected.figure IS NULL AND stored.figure <> 'total' THEN 0
    ELSE expected.figure_bytes
  END
  AND NOT (
    stored.module_id IS NOT NULL
    AND stored.figure_bytes IS NULL
    AND stored.module_id IN (
      SELECT module_id FROM diagnostics WHERE code IN ('allocation_gap', 'total_mismatch')
    )
  )
ORDER BY module_id, finding;
