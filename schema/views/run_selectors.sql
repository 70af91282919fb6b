-- One row per text that selects a run: its name, and each of its labels as LABEL=VALUE.
CREATE OR REPLACE VIEW run_selectors AS
SELECT runs.run_name, runs.run_name AS selector
FROM runs
UNION ALL
SELECT run_labels.run_name, run_labels.label || '=' || run_labels.label_value AS selector
FROM run_labels;
COMMENT ON VIEW run_selectors IS
  'One row per text that selects a run: its name, and each of its labels as LABEL=VALUE. Parameter run of the saved queries is a glob over selector.';
COMMENT ON COLUMN run_selectors.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN run_selectors.selector IS 'The name, or run_labels.label and run_labels.label_value with "=" between them.';
