-- Runs that are alike but for one label, such as the batch size or the rank, or for several.
CREATE OR REPLACE MACRO runs_by_label(by_label, fixed_labels) AS TABLE
WITH wanted AS (
  SELECT string_split(regexp_replace(trim(by_label), '\s*,\s*', ',', 'g'), ',') AS labels
),
sized AS (
  SELECT
    run_labels.run_name,
    string_agg(
      run_labels.label_value, ',' ORDER BY list_position(wanted.labels, run_labels.label)
    ) AS label_value
  FROM run_labels
  CROSS JOIN wanted
  WHERE list_contains(wanted.labels, run_labels.label)
  GROUP BY run_labels.run_name, wanted.labels
  HAVING count(*) = len(wanted.labels)
)
SELECT
  sized.run_name,
  sized.label_value,
  coalesce(
    string_agg(others.label || '=' || others.label_value, ' ' ORDER BY others.label), ''
  ) AS other_labels
FROM sized
CROSS JOIN wanted
LEFT JOIN run_labels AS others
  ON others.run_name = sized.run_name
  AND NOT list_contains(wanted.labels, others.label)
  AND CASE
    WHEN fixed_labels IS NULL THEN NOT others.is_metadata
    ELSE contains(
      ',' || regexp_replace(trim(fixed_labels), '\s*,\s*', ',', 'g') || ',',
      ',' || others.label || ','
    )
  END
GROUP BY sized.run_name, sized.label_value;
COMMENT ON MACRO TABLE runs_by_label IS
  'Runs that have a label, with its value and the other labels that they are alike in. by_label may name several labels, separated by commas: then runs that have all of them, with their values in that order, commas in between. Runs are alike if other_labels (as K=V, separated by blanks) is the same: all that their user labelled them with but for the labels asked about, or instead the labels that fixed_labels names, separated by commas, metadata among them. One row per run.';
