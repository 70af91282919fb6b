-- One row per memory profile: the process that it is of, and whether it describes it.
CREATE OR REPLACE VIEW live_accounts AS
WITH named AS (
  SELECT
    live_profiles.run_name, live_profiles.profile_name,
    regexp_replace(live_profiles.profile_name, '-[0-9]+[.]prof$', '.prof') AS account_name,
    live_profiles.moment, live_profiles.elapsed_seconds, live_profiles.mark,
    live_profiles.snapshot_ordinal,
    -- At the end of a program its functions have returned, and what they held is gone.
    CASE
      WHEN live_profiles.moment = 'snapshot' THEN live_profiles.snapshot_ordinal
      WHEN live_profiles.moment = 'failure' THEN 9223372036854775807
    END AS running_ordinal
  FROM live_profiles
),
-- Sums in the place of windows, which sort all profiles.
processes AS (
  SELECT
    named.run_name, named.account_name,
    CASE WHEN count(named.snapshot_ordinal) = count(*) THEN max(named.snapshot_ordinal) END
      AS account_ordinal,
    CASE WHEN count(named.running_ordinal) > 1 THEN min(named.running_ordinal) END
      AS first_ordinal,
    max(named.running_ordinal) AS last_ordinal
  FROM named
  GROUP BY named.run_name, named.account_name
)
SELECT
  named.run_name, named.profile_name, named.account_name, named.moment, named.elapsed_seconds,
  named.mark, named.snapshot_ordinal,
  named.snapshot_ordinal IS NOT DISTINCT FROM processes.account_ordinal AS is_account,
  coalesce(named.running_ordinal = processes.first_ordinal, FALSE) AS is_first,
  coalesce(
    processes.first_ordinal IS NOT NULL AND named.running_ordinal = processes.last_ordinal, FALSE
  ) AS is_last
FROM named
JOIN processes
  ON processes.run_name = named.run_name
  AND processes.account_name = named.account_name;
COMMENT ON VIEW live_accounts IS
  'One row per memory profile: the process that it is of, when it was taken, and whether it is the account of the process. Key: run_name, profile_name.';
COMMENT ON COLUMN live_accounts.account_name IS 'Name of the profile without the number of a snapshot: all of a process have the same, such as process-2/memory.prof.';
COMMENT ON COLUMN live_accounts.is_account IS 'Whether the process is described by this profile: that of its failure or end, else its last snapshot.';
COMMENT ON COLUMN live_accounts.is_first IS 'Whether it is the first of several snapshots of the process, or its failure among them.';
COMMENT ON COLUMN live_accounts.is_last IS 'Whether it is the last of them: the failure if there is one.';
