-- Runs that the variable run selects.
CREATE OR REPLACE VIEW asked_runs AS
SELECT DISTINCT run_selectors.run_name
FROM run_selectors
WHERE getvariable('run')::VARCHAR IS NULL
  OR run_selectors.selector GLOB getvariable('run')::VARCHAR;
COMMENT ON VIEW asked_runs IS
  'One row per run that the variable run selects: its name or a label as LABEL=VALUE matches that glob; all runs without the variable.';
COMMENT ON COLUMN asked_runs.run_name IS 'The run: runs.run_name.';
