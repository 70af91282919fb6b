-- One row per memory profile: what its process held in all, and whether it is the account of the process.
CREATE OR REPLACE VIEW live_moments AS
-- Hosts that give profiles one name have several rows of it in a dataset.
WITH held AS (
  SELECT
    live_totals.run_name, live_totals.profile_name,
    CAST(sum(live_totals.total_bytes) AS BIGINT) AS total_bytes,
    CAST(sum(live_totals.array_count) AS BIGINT) AS array_count
  FROM live_totals
  GROUP BY live_totals.run_name, live_totals.profile_name
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
COMMENT ON COLUMN live_moments.total_bytes IS 'live_totals.total_bytes: of arrays on all devices [bytes].';
COMMENT ON COLUMN live_moments.array_count IS 'live_totals.array_count: of arrays on all devices.';
