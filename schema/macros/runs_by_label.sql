-- Runs that differ in one label, such as the batch size or the rank, or in several given ones.
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
  sized.run_name, sized.label_value,
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
  'Runs that have a label, with its value and the other labels that group them. by_label may name several labels, separated by commas: then runs that have all of them, with their values in that order, separated by commas. Runs with the same other_labels (K=V, separated by spaces) belong together: all labels set by the user except by_label, or only those that fixed_labels names, separated by commas, which may be metadata. One row per run.';
