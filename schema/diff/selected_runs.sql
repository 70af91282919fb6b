-- Runs that a text names: one side of a comparison.
CREATE OR REPLACE MACRO selected_runs(selection) AS TABLE
SELECT runs.run_name
FROM runs
WHERE runs.run_name = selection
UNION ALL
SELECT run_labels.run_name
FROM run_labels
WHERE run_labels.label || '=' || run_labels.label_value = selection
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_name = selection);
COMMENT ON MACRO TABLE selected_runs IS
  'Runs that a text names: the run of that name, else all runs with the label LABEL=VALUE. One row per run, column run_name.';
