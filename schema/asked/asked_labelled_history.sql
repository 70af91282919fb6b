-- The history of the requested compilations, in the order of a label and split by others.
CREATE OR REPLACE VIEW asked_labelled_history AS
WITH apart AS (
  SELECT
    run_labels.run_name,
    string_agg(run_labels.label || '=' || run_labels.label_value, ' ' ORDER BY run_labels.label)
      AS fixed_labels
  FROM run_labels
  WHERE contains(
    ',' || replace(getvariable('fixed')::VARCHAR, ' ', '') || ',', ',' || run_labels.label || ','
  )
  GROUP BY run_labels.run_name
),
labelled AS (
  SELECT
    history.series_place AS function_series_place, history.function_name, history.platform,
    history.compilation_place, history.color, history.run_name, history.dumped_at,
    history.module_id, history.entry_signature, history.unknown_reason, history.peak_bytes,
    history.temp_bytes, history.argument_bytes, history.output_bytes, history.constant_bytes,
    history.fragmentation_bytes, labels.label_value, apart.fixed_labels,
    TRY_CAST(labels.label_value AS DOUBLE) AS label_number,
    CASE
      WHEN regexp_matches(labels.label_value, '^[vV]?[0-9]+([.][0-9]+)+')
        THEN TRY_CAST(regexp_extract_all(labels.label_value, '[0-9]+') AS HUGEINT[])
    END AS label_version
  FROM asked_history AS history
  LEFT JOIN run_labels AS labels
    ON labels.run_name = history.run_name
    AND labels.label = getvariable('label')::VARCHAR
  LEFT JOIN apart ON apart.run_name = history.run_name
  WHERE getvariable('label')::VARCHAR IS NULL
    OR labels.label_value IS NOT NULL
),
ordered AS (
  SELECT
    labelled.function_series_place, labelled.function_name, labelled.platform,
    labelled.compilation_place, labelled.color, labelled.run_name, labelled.dumped_at,
    labelled.module_id, labelled.entry_signature, labelled.unknown_reason, labelled.peak_bytes,
    labelled.temp_bytes, labelled.argument_bytes, labelled.output_bytes, labelled.constant_bytes,
    labelled.fragmentation_bytes, labelled.label_value, labelled.fixed_labels,
    CASE
      WHEN count(labelled.label_number) OVER series = count(*) OVER series
        THEN labelled.label_number
    END AS number_place,
    CASE
      WHEN count(labelled.label_version) OVER series = count(*) OVER series
        THEN labelled.label_version
    END AS version_place
  FROM labelled
  WINDOW series AS (PARTITION BY labelled.function_series_place, labelled.fixed_labels)
)
SELECT
  dense_rank() OVER (ORDER BY ordered.function_series_place, ordered.fixed_labels NULLS FIRST)
    AS series_place,
  row_number() OVER (
    PARTITION BY ordered.function_series_place, ordered.fixed_labels
    ORDER BY
      ordered.number_place, ordered.version_place,
      ordered.dumped_at NULLS LAST,
      ordered.run_name
  ) AS place,
  ordered.function_name, ordered.platform, ordered.compilation_place, ordered.color,
  ordered.run_name, ordered.dumped_at, ordered.module_id, ordered.entry_signature,
  ordered.unknown_reason, ordered.peak_bytes, ordered.temp_bytes, ordered.argument_bytes,
  ordered.output_bytes, ordered.constant_bytes, ordered.fragmentation_bytes, ordered.label_value,
  ordered.fixed_labels
FROM ordered;
COMMENT ON VIEW asked_labelled_history IS
  'Rows of asked_history for the runs with the label named by the variable label (all runs without it), in the order of that label; runs that differ in a label named in the variable fixed are in separate series. Key: series_place, place.';
COMMENT ON COLUMN asked_labelled_history.series_place IS 'Rank of the series, by asked_history.series_place and fixed_labels.';
COMMENT ON COLUMN asked_labelled_history.place IS 'Position of the run in the series: by label_value if all in the series are numbers, or all are versions (0.9.1 before 0.10.0), else (and for equal values) by dumped_at and name.';
COMMENT ON COLUMN asked_labelled_history.label_value IS 'Value of the label that the variable label names: run_labels.label_value; NULL without the variable.';
COMMENT ON COLUMN asked_labelled_history.fixed_labels IS 'The labels that the variable fixed names, as K=V separated by spaces; NULL without the variable, or if the run has none of them.';
