-- One row per memory profile: what its process held in all, and whether it is the account of the process.
CREATE OR REPLACE VIEW live_moments AS
WITH held AS (
  SELECT
    live_sums.run_name, live_sums.profile_name,
    CAST(sum(live_sums.total_bytes) AS BIGINT) AS total_bytes,
    CAST(sum(live_sums.array_count) AS BIGINT) AS array_count
  FROM live_sums
  GROUP BY live_sums.run_name, live_sums.profile_name
)
SELECT
  live_accounts.run_name, live_accounts.profile_name, live_accounts.account_name,
  live_accounts.moment, live_accounts.elapsed_seconds, live_accounts.mark,
  live_accounts.snapshot_ordinal,
  coalesce(held.total_bytes, 0) AS total_bytes,
  coalesce(held.array_count, 0) AS array_count,
  live_accounts.is_account
FROM live_accounts
LEFT JOIN held
  ON held.run_name = live_accounts.run_name
  AND held.profile_name = live_accounts.profile_name;
COMMENT ON VIEW live_moments IS
  'One row per memory profile: when it was taken, what the process held on all devices, and whether it is the account of the process. Key: run_name, profile_name.';
COMMENT ON COLUMN live_moments.total_bytes IS 'Sum of live_arrays.total_bytes over all devices [bytes].';
COMMENT ON COLUMN live_moments.array_count IS 'Sum of live_arrays.array_count over all devices.';
