-- title: Every module has the rows that were stored
-- group: store
--
-- Ingest counts the rows of each module and table as it stores them (table row_counts).
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH stored AS (
  SELECT module_id, 'allocations' AS table_name FROM allocations
  UNION ALL
  SELECT module_id, 'compiler_options' AS table_name FROM compiler_options
  UNION ALL
  SELECT module_id, 'diagnostics' AS table_name FROM diagnostics
  UNION ALL
  SELECT module_id, 'entry_parameters' AS table_name FROM entry_parameters
  UNION ALL
  SELECT module_id, 'files' AS table_name FROM files
  UNION ALL
  SELECT module_id, 'input_output_aliases' AS table_name FROM input_output_aliases
  UNION ALL
  SELECT module_id, 'instruction_costs' AS table_name FROM instruction_costs
  UNION ALL
  SELECT module_id, 'instruction_executions' AS table_name FROM instruction_executions
  UNION ALL
  SELECT module_id, 'instruction_times' AS table_name FROM instruction_times
  UNION ALL
  SELECT module_id, 'instructions' AS table_name FROM instructions
  UNION ALL
  SELECT module_id, 'kernels' AS table_name FROM kernels
  UNION ALL
  SELECT module_id, 'live_ranges' AS table_name FROM live_ranges
  UNION ALL
  SELECT module_id, 'memory_sums' AS table_name FROM memory_sums
  UNION ALL
  SELECT module_id, 'modules' AS table_name FROM modules
  UNION ALL
  SELECT module_id, 'occupancy_steps' AS table_name FROM occupancy_steps
  UNION ALL
  SELECT module_id, 'occupied_peaks' AS table_name FROM occupied_peaks
  UNION ALL
  SELECT module_id, 'peak_contributors' AS table_name FROM peak_contributors
  UNION ALL
  SELECT module_id, 'peak_savings' AS table_name FROM peak_savings
  UNION ALL
  SELECT module_id, 'peak_stack_nodes' AS table_name FROM peak_stack_nodes
  UNION ALL
  SELECT module_id, 'peak_values' AS table_name FROM peak_values
  UNION ALL
  SELECT module_id, 'peaks' AS table_name FROM peaks
  UNION ALL
  SELECT module_id, 'positions' AS table_name FROM positions
  UNION ALL
  SELECT module_id, 'recompute_costs' AS table_name FROM recompute_costs
  UNION ALL
  SELECT module_id, 'recompute_instructions' AS table_name FROM recompute_instructions
  UNION ALL
  SELECT module_id, 'recompute_parts' AS table_name FROM recompute_parts
  UNION ALL
  SELECT module_id, 'reported_sums' AS table_name FROM reported_sums
  UNION ALL
  SELECT module_id, 'scheduled_limits' AS table_name FROM scheduled_limits
  UNION ALL
  SELECT module_id, 'stack_frames' AS table_name FROM stack_frames
  UNION ALL
  SELECT module_id, 'uses' AS table_name FROM uses
  UNION ALL
  SELECT module_id, 'value_origins' AS table_name FROM value_origins
  UNION ALL
  SELECT module_id, 'value_users' AS table_name FROM value_users
  UNION ALL
  SELECT module_id, 'values' AS table_name FROM "values"
),
found AS (
  SELECT module_id, table_name, count(*) AS row_count
  FROM stored
  WHERE module_id IS NOT NULL
  GROUP BY module_id, table_name
)
SELECT
  coalesce(row_counts.module_id, found.module_id) AS module_id,
  'table ' || coalesce(row_counts.table_name, found.table_name) || ': stored '
    || coalesce(row_counts.row_count, 0) || ' rows, found ' || coalesce(found.row_count, 0)
    AS finding
FROM row_counts
FULL JOIN found
  ON found.module_id = row_counts.module_id
  AND found.table_name = row_counts.table_name
WHERE row_counts.row_count IS DISTINCT FROM found.row_count
UNION ALL
SELECT
  row_counts.module_id,
  'table ' || row_counts.table_name || ': counted ' || count(*) || ' times' AS finding
FROM row_counts
GROUP BY row_counts.module_id, row_counts.table_name
HAVING count(*) > 1
ORDER BY module_id, finding;
