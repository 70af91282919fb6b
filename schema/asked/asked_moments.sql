-- Snapshots and failures of the processes that the variables run and profile select, in runs with a selected program.
CREATE OR REPLACE VIEW asked_moments AS
WITH asked AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::VARCHAR AS color,
    getvariable('profile')::VARCHAR AS profile
),
-- Sail compares each profile with each program in an EXISTS next to an OR.
programmed AS (
  SELECT DISTINCT asked_modules.run_name
  FROM asked_modules
)
SELECT
  live_accounts.run_name, live_accounts.profile_name, live_accounts.account_name,
  live_accounts.moment, live_accounts.elapsed_seconds, live_accounts.mark,
  live_accounts.snapshot_ordinal
FROM live_accounts
JOIN asked_runs ON asked_runs.run_name = live_accounts.run_name
LEFT JOIN programmed ON programmed.run_name = live_accounts.run_name
CROSS JOIN asked
WHERE live_accounts.moment IN ('snapshot', 'failure')
  AND (asked.profile IS NULL OR live_accounts.account_name GLOB asked.profile)
  AND (
    (
      coalesce(asked.function, '*') = '*'
      AND coalesce(asked.module, '*') = '*'
      AND coalesce(asked.platform, '*') = '*'
      AND asked.color IS NULL
    )
    OR programmed.run_name IS NOT NULL
  );
COMMENT ON VIEW asked_moments IS
  'One row per memory profile that was taken while a process ran: a snapshot, or that of its failure; at the end of a program its functions have returned, and what they held is gone. Of runs that the variable run selects (asked_runs) those processes whose account_name matches the glob in the variable profile; with function, module, platform or color only in runs that have a program which they select (asked_modules). Key: run_name, profile_name.';
COMMENT ON COLUMN asked_moments.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN asked_moments.account_name IS 'The process: live_accounts.account_name.';
COMMENT ON COLUMN asked_moments.moment IS 'snapshot or failure.';
COMMENT ON COLUMN asked_moments.elapsed_seconds IS 'Time since the process began to be watched [s]; NULL if it is not known.';
