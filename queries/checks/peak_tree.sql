-- title: The stack trace breakdown adds up
-- group: overview
--
-- Format section 6.3: one root, whose total is the header's and the sum of the peak listing; a
-- node's total is its own bytes and its children's; what remains falls from the header's total to
-- 0.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH children AS (
  SELECT
    peak_stack_nodes.module_id,
    peak_stack_nodes.parent_ordinal,
    sum(peak_stack_nodes.total_bytes) AS total_bytes
  FROM peak_stack_nodes
  WHERE peak_stack_nodes.parent_ordinal IS NOT NULL
  GROUP BY peak_stack_nodes.module_id, peak_stack_nodes.parent_ordinal
),
nodes AS (
  SELECT
    peak_stack_nodes.module_id,
    peak_stack_nodes.node_ordinal,
    peak_stack_nodes.total_bytes,
    peak_stack_nodes.current_bytes,
    peak_stack_nodes.remaining_bytes,
    modules.reported_peak_tree_bytes - sum(peak_stack_nodes.current_bytes) OVER (
      PARTITION BY peak_stack_nodes.module_id
      ORDER BY peak_stack_nodes.node_ordinal
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS expected_bytes
  FROM peak_stack_nodes
  JOIN modules ON modules.module_id = peak_stack_nodes.module_id
),
roots AS (
  SELECT
    peak_stack_nodes.module_id,
    count(*) AS root_count,
    sum(peak_stack_nodes.total_bytes) AS total_bytes
  FROM peak_stack_nodes
  WHERE peak_stack_nodes.parent_ordinal IS NULL
  GROUP BY peak_stack_nodes.module_id
),
listings AS (
  SELECT
    peak_contributors.module_id,
    sum(peak_contributors.logical_bytes) AS total_bytes
  FROM peak_contributors
  GROUP BY peak_contributors.module_id
)
SELECT
  modules.module_id,
  'header ' || modules.reported_peak_tree_bytes || ' bytes, listing '
    || coalesce(listings.total_bytes, 0) || ', ' || coalesce(roots.root_count, 0) || ' roots with '
    || coalesce(roots.total_bytes, 0) AS finding
FROM modules
LEFT JOIN roots ON roots.module_id = modules.module_id
LEFT JOIN listings ON listings.module_id = modules.module_id
WHERE modules.reported_peak_tree_bytes IS NOT NULL
  AND (
    modules.reported_peak_tree_bytes <> wrapped_int64(coalesce(listings.total_bytes, 0))
    OR modules.reported_peak_tree_bytes <> coalesce(roots.total_bytes, 0)
    OR roots.root_count > 1
  )
UNION ALL
SELECT
  nodes.module_id,
  'node ' || nodes.node_ordinal || ': total ' || nodes.total_bytes || ', own '
    || nodes.current_bytes || ', children ' || coalesce(children.total_bytes, 0) || ', remaining '
    || nodes.remaining_bytes || ', expected ' || nodes.expected_bytes AS finding
FROM nodes
LEFT JOIN children
  ON children.module_id = nodes.module_id
  AND children.parent_ordinal = nodes.node_ordinal
WHERE nodes.total_bytes <> nodes.current_bytes + coalesce(children.total_bytes, 0)
  OR nodes.remaining_bytes <> nodes.expected_bytes
ORDER BY module_id, finding;
