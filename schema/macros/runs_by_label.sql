-- Runs that are alike but for one label, such as the batch size or the rank.
CREATE OR REPLACE MACRO runs_by_label(by_label, fixed_labels) AS TABLE
SELECT
  sized.run_name,
  sized.label_value,
  coalesce(
    string_agg(others.label || '=' || others.label_value, ' ' ORDER BY others.label), ''
  ) AS other_labels
FROM run_labels AS sized
LEFT JOIN run_labels AS others
  ON others.run_name = sized.run_name
  AND others.label <> sized.label
  AND CASE
    WHEN fixed_labels IS NULL THEN NOT others.is_metadata
    ELSE contains(
      ',' || regexp_replace(trim(fixed_labels), '\s*,\s*', ',', 'g') || ',',
      ',' || others.label || ','
    )
  END
WHERE sized.label = by_label
GROUP BY sized.run_name, sized.label_value;
COMMENT ON MACRO TABLE runs_by_label IS
  'Runs that have a label, with its value and the other labels that they are alike in. Runs are alike if other_labels (as K=V, separated by blanks) is the same: all that their user labelled them with but for the label asked about, or instead the labels that fixed_labels names, separated by commas, metadata among them. One row per run.';
