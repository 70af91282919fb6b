-- One row per memory profile: what its process held in all, and whether it is the account of the process.
CREATE OR REPLACE VIEW live_moments AS
WITH named AS (
  SELECT
    live_profiles.run_name, live_profiles.profile_name,
    regexp_replace(live_profiles.profile_name, '-[0-9]+[.]prof$', '.prof') AS account_name,
    live_profiles.moment, live_profiles.elapsed_seconds, live_profiles.mark,
    live_profiles.snapshot_ordinal
  FROM live_profiles
),
held AS (
  SELECT
    live_sums.run_name, live_sums.profile_name,
    sum(live_sums.total_bytes)::BIGINT AS total_bytes,
    sum(live_sums.array_count)::BIGINT AS array_count
  FROM live_sums
  GROUP BY live_sums.run_name, live_sums.profile_name
)
SELECT
  named.run_name, named.profile_name, named.account_name, named.moment, named.elapsed_seconds,
  named.mark, named.snapshot_ordinal,
  coalesce(held.total_bytes, 0) AS total_bytes,
  coalesce(held.array_count, 0) AS array_count,
  (
    named.snapshot_ordinal IS NULL
    OR row_number() OVER (
      PARTITION BY named.run_name, named.account_name
      ORDER BY named.snapshot_ordinal DESC NULLS FIRST, named.profile_name
    ) = 1
  ) AS is_account
FROM named
LEFT JOIN held
  ON held.run_name = named.run_name
  AND held.profile_name = named.profile_name;
COMMENT ON VIEW live_moments IS
  'One row per memory profile: when it was taken, what the process held on all devices, and whether it is the account of the process. Key: run_name, profile_name.';
COMMENT ON COLUMN live_moments.account_name IS 'Name of the profile without the number of a snapshot: all of a process have the same, such as process-2/memory.prof.';
COMMENT ON COLUMN live_moments.total_bytes IS 'Sum of live_arrays.total_bytes over all devices [bytes].';
COMMENT ON COLUMN live_moments.array_count IS 'Sum of live_arrays.array_count over all devices.';
COMMENT ON COLUMN live_moments.is_account IS 'Whether the process is described by this profile: that of its failure or end, else its last snapshot.';
