-- One row per memory profile: the process that it is of, and whether it describes it.
CREATE OR REPLACE VIEW live_accounts AS
WITH named AS (
  SELECT
    live_profiles.run_name, live_profiles.profile_name,
    regexp_replace(live_profiles.profile_name, '-[0-9]+[.]prof$', '.prof') AS account_name,
    live_profiles.moment, live_profiles.elapsed_seconds, live_profiles.mark,
    live_profiles.snapshot_ordinal
  FROM live_profiles
)
SELECT
  named.run_name, named.profile_name, named.account_name, named.moment, named.elapsed_seconds,
  named.mark, named.snapshot_ordinal,
  (
    named.snapshot_ordinal IS NULL
    OR row_number() OVER (
      PARTITION BY named.run_name, named.account_name
      ORDER BY named.snapshot_ordinal DESC NULLS FIRST, named.profile_name
    ) = 1
  ) AS is_account
FROM named;
COMMENT ON VIEW live_accounts IS
  'One row per memory profile: the process that it is of, when it was taken, and whether it is the account of the process. Key: run_name, profile_name.';
COMMENT ON COLUMN live_accounts.account_name IS 'Name of the profile without the number of a snapshot: all of a process have the same, such as process-2/memory.prof.';
COMMENT ON COLUMN live_accounts.is_account IS 'Whether the process is described by this profile: that of its failure or end, else its last snapshot.';
