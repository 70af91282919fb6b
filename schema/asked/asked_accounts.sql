-- Memory profiles and logs of allocators that the variables run and profile select.
CREATE OR REPLACE VIEW asked_accounts AS
WITH names AS (
  SELECT live_accounts.run_name, live_accounts.profile_name, live_accounts.is_account
  FROM live_accounts
  UNION ALL
  SELECT DISTINCT
    allocator_figures.run_name, allocator_figures.profile_name, TRUE AS is_account
  FROM allocator_figures
  WHERE NOT EXISTS (
    SELECT 1
    FROM live_profiles
    WHERE live_profiles.run_name = allocator_figures.run_name
      AND live_profiles.profile_name = allocator_figures.profile_name
  )
)
SELECT names.run_name, names.profile_name
FROM names
JOIN asked_runs ON asked_runs.run_name = names.run_name
WHERE CASE
  WHEN getvariable('profile')::VARCHAR IS NULL THEN names.is_account
  ELSE names.profile_name GLOB getvariable('profile')::VARCHAR
END;
COMMENT ON VIEW asked_accounts IS
  'One row per memory profile, or log with a report of an allocator, of a run that the variable run selects (asked_runs): those whose name matches the glob in the variable profile, snapshots included; without it the one that describes each process (live_accounts.is_account). Key: run_name, profile_name.';
COMMENT ON COLUMN asked_accounts.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN asked_accounts.profile_name IS 'The profile or log: live_profiles.profile_name or allocator_statistics.profile_name.';
