-- title: The rows of every run are those that bufdb wrote
-- group: overview
--
-- As row_checksums, for runs, their labels and diagnostics of no module.
--
-- column module_id BIGINT: NULL: a run is no module.
-- column finding VARCHAR: What was expected, what was found.
WITH stored AS (
  SELECT
    runs.run_name,
    'runs' AS table_name,
    count(*) AS row_count,
    (sum(hash(runs)) % 9223372036854775808)::BIGINT AS checksum
  FROM runs
  GROUP BY runs.run_name
  UNION ALL
  SELECT
    run_labels.run_name,
    'run_labels' AS table_name,
    count(*) AS row_count,
    (sum(hash(run_labels)) % 9223372036854775808)::BIGINT AS checksum
  FROM run_labels
  GROUP BY run_labels.run_name
  UNION ALL
  SELECT
    diagnostics.run_name,
    'diagnostics' AS table_name,
    count(*) AS row_count,
    (sum(hash(diagnostics)) % 9223372036854775808)::BIGINT AS checksum
  FROM diagnostics
  WHERE diagnostics.module_id IS NULL
  GROUP BY diagnostics.run_name
),
written AS (
  SELECT
    run_checksums.run_name,
    run_checksums.table_name,
    sum(run_checksums.row_count) AS row_count,
    count(*) AS checksum_count,
    any_value(run_checksums.checksum) AS checksum,
    any_value(run_checksums.hash_probe) AS hash_probe,
    -- One DuckDB has written all of them.
    min(min(run_checksums.hash_probe)) OVER same_writer
      <> max(max(run_checksums.hash_probe)) OVER same_writer AS has_probes
  FROM run_checksums
  GROUP BY run_checksums.run_name, run_checksums.table_name
  WINDOW same_writer AS (PARTITION BY run_checksums.run_name)
)
SELECT
  NULL::BIGINT AS module_id,
  'run ' || coalesce(written.run_name, stored.run_name) || ', table '
    || coalesce(written.table_name, stored.table_name) || ': ' || CASE
    WHEN written.checksum_count > 1 THEN written.checksum_count || ' checksums'
    WHEN written.has_probes THEN 'its checksums have several values of hash_probe'
    WHEN written.table_name IS NULL THEN stored.row_count || ' rows and no checksum'
    WHEN written.row_count <> coalesce(stored.row_count, 0)
      THEN 'wrote ' || written.row_count || ' rows, found ' || coalesce(stored.row_count, 0)
    ELSE 'a value in its ' || written.row_count || ' rows is not the one that was written'
  END AS finding
FROM written
FULL JOIN stored
  ON stored.run_name = written.run_name
  AND stored.table_name = written.table_name
WHERE written.row_count IS DISTINCT FROM stored.row_count
  OR written.checksum_count > 1
  OR written.has_probes
  OR (written.hash_probe = hash('bufdb') AND written.checksum <> stored.checksum)
ORDER BY finding;
