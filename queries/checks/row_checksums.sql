-- title: The rows of every module are those that ingest wrote
-- group: overview
--
-- row_checksums holds the number of rows of every table and a sum over their hash(). Which row was
-- changed it cannot say. Not compared where hash() of this DuckDB is another than the writer's.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH stored AS (
  SELECT
    allocations.module_id,
    'allocations' AS table_name,
    count(*) AS row_count,
    (sum(hash(allocations)) % 9223372036854775808)::BIGINT AS checksum
  FROM allocations
  GROUP BY allocations.module_id
  UNION ALL
  SELECT
    compiler_options.module_id,
    'compiler_options' AS table_name,
    count(*) AS row_count,
    (sum(hash(compiler_options)) % 9223372036854775808)::BIGINT AS checksum
  FROM compiler_options
  GROUP BY compiler_options.module_id
  UNION ALL
  SELECT
    diagnostics.module_id,
    'diagnostics' AS table_name,
    count(*) AS row_count,
    (sum(hash(diagnostics)) % 9223372036854775808)::BIGINT AS checksum
  FROM diagnostics
  WHERE diagnostics.module_id IS NOT NULL
  GROUP BY diagnostics.module_id
  UNION ALL
  SELECT
    entry_parameters.module_id,
    'entry_parameters' AS table_name,
    count(*) AS row_count,
    (sum(hash(entry_parameters)) % 9223372036854775808)::BIGINT AS checksum
  FROM entry_parameters
  GROUP BY entry_parameters.module_id
  UNION ALL
  SELECT
    files.module_id,
    'files' AS table_name,
    count(*) AS row_count,
    (sum(hash(files)) % 9223372036854775808)::BIGINT AS checksum
  FROM files
  GROUP BY files.module_id
  UNION ALL
  SELECT
    input_output_aliases.module_id,
    'input_output_aliases' AS table_name,
    count(*) AS row_count,
    (sum(hash(input_output_aliases)) % 9223372036854775808)::BIGINT AS checksum
  FROM input_output_aliases
  GROUP BY input_output_aliases.module_id
  UNION ALL
  SELECT
    instructions.module_id,
    'instructions' AS table_name,
    count(*) AS row_count,
    (sum(hash(instructions)) % 9223372036854775808)::BIGINT AS checksum
  FROM instructions
  GROUP BY instructions.module_id
  UNION ALL
  SELECT
    live_ranges.module_id,
    'live_ranges' AS table_name,
    count(*) AS row_count,
    (sum(hash(live_ranges)) % 9223372036854775808)::BIGINT AS checksum
  FROM live_ranges
  GROUP BY live_ranges.module_id
  UNION ALL
  SELECT
    memory_sums.module_id,
    'memory_sums' AS table_name,
    count(*) AS row_count,
    (sum(hash(memory_sums)) % 9223372036854775808)::BIGINT AS checksum
  FROM memory_sums
  GROUP BY memory_sums.module_id
  UNION ALL
  SELECT
    modules.module_id,
    'modules' AS table_name,
    count(*) AS row_count,
    (sum(hash(modules)) % 9223372036854775808)::BIGINT AS checksum
  FROM modules
  GROUP BY modules.module_id
  UNION ALL
  SELECT
    occupancy_steps.module_id,
    'occupancy_steps' AS table_name,
    count(*) AS row_count,
    (sum(hash(occupancy_steps)) % 9223372036854775808)::BIGINT AS checksum
  FROM occupancy_steps
  GROUP BY occupancy_steps.module_id
  UNION ALL
  SELECT
    occupied_peaks.module_id,
    'occupied_peaks' AS table_name,
    count(*) AS row_count,
    (sum(hash(occupied_peaks)) % 9223372036854775808)::BIGINT AS checksum
  FROM occupied_peaks
  GROUP BY occupied_peaks.module_id
  UNION ALL
  SELECT
    peak_contributors.module_id,
    'peak_contributors' AS table_name,
    count(*) AS row_count,
    (sum(hash(peak_contributors)) % 9223372036854775808)::BIGINT AS checksum
  FROM peak_contributors
  GROUP BY peak_contributors.module_id
  UNION ALL
  SELECT
    peak_savings.module_id,
    'peak_savings' AS table_name,
    count(*) AS row_count,
    (sum(hash(peak_savings)) % 9223372036854775808)::BIGINT AS checksum
  FROM peak_savings
  GROUP BY peak_savings.module_id
  UNION ALL
  SELECT
    peak_stack_nodes.module_id,
    'peak_stack_nodes' AS table_name,
    count(*) AS row_count,
    (sum(hash(peak_stack_nodes)) % 9223372036854775808)::BIGINT AS checksum
  FROM peak_stack_nodes
  GROUP BY peak_stack_nodes.module_id
  UNION ALL
  SELECT
    peak_values.module_id,
    'peak_values' AS table_name,
    count(*) AS row_count,
    (sum(hash(peak_values)) % 9223372036854775808)::BIGINT AS checksum
  FROM peak_values
  GROUP BY peak_values.module_id
  UNION ALL
  SELECT
    value_users.module_id,
    'value_users' AS table_name,
    count(*) AS row_count,
    (sum(hash(value_users)) % 9223372036854775808)::BIGINT AS checksum
  FROM value_users
  GROUP BY value_users.module_id
  UNION ALL
  SELECT
    peaks.module_id,
    'peaks' AS table_name,
    count(*) AS row_count,
    (sum(hash(peaks)) % 9223372036854775808)::BIGINT AS checksum
  FROM peaks
  GROUP BY peaks.module_id
  UNION ALL
  SELECT
    positions.module_id,
    'positions' AS table_name,
    count(*) AS row_count,
    (sum(hash(positions)) % 9223372036854775808)::BIGINT AS checksum
  FROM positions
  GROUP BY positions.module_id
  UNION ALL
  SELECT
    reported_sums.module_id,
    'reported_sums' AS table_name,
    count(*) AS row_count,
    (sum(hash(reported_sums)) % 9223372036854775808)::BIGINT AS checksum
  FROM reported_sums
  GROUP BY reported_sums.module_id
  UNION ALL
  SELECT
    stack_frames.module_id,
    'stack_frames' AS table_name,
    count(*) AS row_count,
    (sum(hash(stack_frames)) % 9223372036854775808)::BIGINT AS checksum
  FROM stack_frames
  GROUP BY stack_frames.module_id
  UNION ALL
  SELECT
    uses.module_id,
    'uses' AS table_name,
    count(*) AS row_count,
    (sum(hash(uses)) % 9223372036854775808)::BIGINT AS checksum
  FROM uses
  GROUP BY uses.module_id
  UNION ALL
  SELECT
    recompute_costs.module_id,
    'recompute_costs' AS table_name,
    count(*) AS row_count,
    (sum(hash(recompute_costs)) % 9223372036854775808)::BIGINT AS checksum
  FROM recompute_costs
  GROUP BY recompute_costs.module_id
  UNION ALL
  SELECT
    recompute_parts.module_id,
    'recompute_parts' AS table_name,
    count(*) AS row_count,
    (sum(hash(recompute_parts)) % 9223372036854775808)::BIGINT AS checksum
  FROM recompute_parts
  GROUP BY recompute_parts.module_id
  UNION ALL
  SELECT
    value_origins.module_id,
    'value_origins' AS table_name,
    count(*) AS row_count,
    (sum(hash(value_origins)) % 9223372036854775808)::BIGINT AS checksum
  FROM value_origins
  GROUP BY value_origins.module_id
  UNION ALL
  SELECT
    "values".module_id,
    'values' AS table_name,
    count(*) AS row_count,
    (sum(hash("values")) % 9223372036854775808)::BIGINT AS checksum
  FROM "values"
  GROUP BY "values".module_id
),
written AS (
  SELECT
    row_checksums.module_id,
    row_checksums.table_name,
    sum(row_checksums.row_count) AS row_count,
    count(*) AS checksum_count,
    any_value(row_checksums.checksum) AS checksum,
    any_value(row_checksums.hash_probe) AS hash_probe,
    -- One DuckDB has written all of them.
    min(min(row_checksums.hash_probe)) OVER same_writer
      <> max(max(row_checksums.hash_probe)) OVER same_writer AS has_probes
  FROM row_checksums
  GROUP BY row_checksums.module_id, row_checksums.table_name
  WINDOW same_writer AS (PARTITION BY row_checksums.module_id)
)
SELECT
  coalesce(written.module_id, stored.module_id) AS module_id,
  'table ' || coalesce(written.table_name, stored.table_name) || ': ' || CASE
    WHEN written.checksum_count > 1 THEN written.checksum_count || ' checksums'
    WHEN written.has_probes THEN 'its checksums have several values of hash_probe'
    WHEN written.table_name IS NULL THEN stored.row_count || ' rows and no checksum'
    WHEN written.row_count <> coalesce(stored.row_count, 0)
      THEN 'ingested ' || written.row_count || ' rows, found ' || coalesce(stored.row_count, 0)
    ELSE 'a value in its ' || written.row_count || ' rows is not the one that was ingested'
  END || '; ingest the module again' AS finding
FROM written
FULL JOIN stored
  ON stored.module_id = written.module_id
  AND stored.table_name = written.table_name
WHERE written.row_count IS DISTINCT FROM stored.row_count
  OR written.checksum_count > 1
  OR written.has_probes
  OR (written.hash_probe = hash('bufdb') AND written.checksum <> stored.checksum)
ORDER BY module_id, finding;
