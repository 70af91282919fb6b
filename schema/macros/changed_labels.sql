-- What changed in the labels from one run to another.
CREATE OR REPLACE MACRO changed_labels(old_run, new_run) AS (
  SELECT
    string_agg(
      sides.label || '=' || coalesce(sides.old_value, '-') || '>' || coalesce(sides.new_value, '-'),
      ' ' ORDER BY sides.label
    )
  FROM (
    SELECT
      run_labels.label,
      max(CASE WHEN run_labels.run_name = old_run THEN run_labels.label_value END) AS old_value,
      max(CASE WHEN run_labels.run_name = new_run THEN run_labels.label_value END) AS new_value
    FROM run_labels
    WHERE old_run IS NOT NULL
      AND (run_labels.run_name = old_run OR run_labels.run_name = new_run)
    GROUP BY run_labels.label
  ) AS sides
  WHERE sides.old_value IS DISTINCT FROM sides.new_value
);
COMMENT ON MACRO changed_labels IS
  'What changed in the labels from old_run to new_run (names of runs): LABEL=OLD>NEW for each label whose value differs, - where a run has none, separated by blanks; NULL if nothing did, or old_run is NULL.';
