-- title: First run of a series whose figure exceeds that of the run before
-- group: comparison
-- engines: duckdb, spark, sail
--
-- Goes through the runs that compiled a function in order of the time of their dumps, or of a label
-- such as a version, and finds the first whose figure is more than factor times that of the run
-- before: where did it break? One row per function, platform and memory space that has such a run,
-- largest growth first. Each of several compilations is followed through those of the same
-- signature, what is left by size, as bufdb diff pairs two runs (view asked_series). A run whose
-- figure is unknown is passed over: unknown_count says how many were, and a function that has such
-- runs and no run that exceeds another has a row without one. Compare the two runs with bufdb diff.
-- Runs of other labels, such as another batch size, follow one another too: changed_labels says
-- where one differs from the run before, and fixed keeps them apart.
--
-- wrong when: Times are those of the dump files; files that were copied without their times, or
-- runs ingested from one checkout, are out of order. Growth in small steps, each below the factor,
-- is not found. A new shape is no regression: signature_is_same says whether the shapes of
-- arguments and result are those of the run before. A function that was renamed begins a series of
-- its own: of many runs, which names are one would depend on the runs asked for. bufdb diff pairs
-- those of two runs by signature and likeness.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param label VARCHAR = NULL: Only runs that have this label, in its order: by value if all are
--   numbers, or versions such as 0.9.1 and 0.10.0; else, and NULL, by the time of the dumps.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a series; NULL
--   takes none.
-- param figure VARCHAR = 'peak' | 'temps' | 'arguments' | 'outputs' | 'constants' |
--   'fragmentation': Figure to follow.
-- param factor DOUBLE = 1.05: Growth that counts: 1.05 is more than 5 percent.
-- param least_bytes BIGINT = 0: Growth that counts at least [bytes].
-- param top_n BIGINT = 50: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column compilation_place BIGINT: Which of several compilations of the function, 1 the largest.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The first run that exceeds the run before; like all below NULL if none
--   of those with a known figure does.
-- column label_value VARCHAR: Value of the label; NULL without label.
-- column fixed_labels VARCHAR: The labels that are equal within the series, as K=V separated by
--   blanks; NULL without fixed, or if the runs have none of them.
-- column changed_labels VARCHAR: Labels that are not as in the run before, as K=OLD>NEW separated
--   by blanks, - for none; NULL if they are the same, and without such a run.
-- column dumped_at TIMESTAMP: Earliest time of its dump files [UTC]; NULL if unknown.
-- column previous_run_name VARCHAR: The run before that has a known figure.
-- column previous_bytes HUGEINT: The figure in the run before [bytes].
-- column figure_bytes HUGEINT: The figure in this run [bytes].
-- column delta_bytes HUGEINT: The difference [bytes].
-- column delta_ratio DOUBLE: The same divided by previous_bytes; NULL if those are 0.
-- column signature_is_same BOOLEAN: Whether shapes of arguments and result are those of the run
--   before; NULL where either is unknown.
-- column regression_count BIGINT: Runs of the series that exceed the run before them.
-- column unknown_count BIGINT: Runs of the series whose figure is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all figures are known.
WITH params AS (
  SELECT
    coalesce(getvariable('figure')::VARCHAR, 'peak') AS figure,
    coalesce(getvariable('factor')::DOUBLE, 1.05) AS factor,
    coalesce(getvariable('least_bytes')::BIGINT, 0) AS least_bytes,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
figures AS (
  SELECT
    series_place, place, function_name, platform, compilation_place, color, run_name, dumped_at,
    label_value, fixed_labels, entry_signature, unknown_reason,
    CASE params.figure
      WHEN 'peak' THEN peak_bytes
      WHEN 'temps' THEN temp_bytes
      WHEN 'arguments' THEN argument_bytes
      WHEN 'outputs' THEN output_bytes
      WHEN 'constants' THEN constant_bytes
      WHEN 'fragmentation' THEN fragmentation_bytes
    END AS figure_bytes
  FROM asked_labelled_history
  CROSS JOIN params
),
compared AS (
  SELECT
    series_place, place, run_name, label_value, dumped_at, figure_bytes, entry_signature,
    lag(run_name) OVER (PARTITION BY series_place ORDER BY place) AS previous_run_name,
    lag(figure_bytes) OVER (PARTITION BY series_place ORDER BY place) AS previous_bytes,
    lag(entry_signature) OVER (PARTITION BY series_place ORDER BY place) AS previous_signature
  FROM figures
  WHERE figure_bytes IS NOT NULL
),
regressions AS (
  SELECT
    series_place, run_name, label_value, dumped_at, previous_run_name, previous_bytes,
    figure_bytes,
    entry_signature = previous_signature AS signature_is_same,
    row_number() OVER (PARTITION BY series_place ORDER BY place) AS regression_place,
    count(*) OVER (PARTITION BY series_place) AS regression_count
  FROM compared
  CROSS JOIN params
  WHERE figure_bytes > previous_bytes * params.factor
    AND figure_bytes - previous_bytes >= params.least_bytes
),
series AS (
  SELECT
    series_place, function_name, platform, compilation_place, color, fixed_labels,
    count(CASE WHEN figure_bytes IS NULL THEN 1 END) AS unknown_count,
    min(CASE WHEN figure_bytes IS NULL THEN unknown_reason END) AS unknown_reason
  FROM figures
  GROUP BY series_place, function_name, platform, compilation_place, color, fixed_labels
),
run_pairs AS (
  SELECT DISTINCT previous_run_name, run_name
  FROM regressions
  WHERE previous_run_name IS NOT NULL
),
label_pairs AS (
  SELECT
    run_pairs.previous_run_name, run_pairs.run_name, run_labels.label,
    max(
      CASE WHEN run_labels.run_name = run_pairs.previous_run_name THEN run_labels.label_value END
    ) AS old_value,
    max(
      CASE WHEN run_labels.run_name = run_pairs.run_name THEN run_labels.label_value END
    ) AS new_value
  FROM run_pairs
  JOIN run_labels
    ON run_labels.run_name = run_pairs.previous_run_name
    OR run_labels.run_name = run_pairs.run_name
  GROUP BY run_pairs.previous_run_name, run_pairs.run_name, run_labels.label
),
changes AS (
  SELECT
    previous_run_name, run_name,
    string_agg(
      label || '=' || coalesce(old_value, '-') || '>' || coalesce(new_value, '-'),
      ' ' ORDER BY label
    ) AS changed_labels
  FROM label_pairs
  WHERE coalesce(old_value <> new_value, TRUE)
  GROUP BY previous_run_name, run_name
)
SELECT
  series.function_name, series.platform, series.compilation_place, series.color,
  regressions.run_name, regressions.label_value, series.fixed_labels,
  changes.changed_labels,
  regressions.dumped_at,
  regressions.previous_run_name, regressions.previous_bytes, regressions.figure_bytes,
  regressions.figure_bytes - regressions.previous_bytes AS delta_bytes,
  CAST(regressions.figure_bytes - regressions.previous_bytes AS DOUBLE)
    / nullif(regressions.previous_bytes, 0) AS delta_ratio,
  regressions.signature_is_same, regressions.regression_count, series.unknown_count,
  series.unknown_reason
FROM series
LEFT JOIN regressions
  ON regressions.series_place = series.series_place
  AND regressions.regression_place = 1
LEFT JOIN changes
  ON changes.previous_run_name = regressions.previous_run_name
  AND changes.run_name = regressions.run_name
WHERE regressions.regression_place = 1 OR series.unknown_count > 0
ORDER BY
  regressions.figure_bytes - regressions.previous_bytes DESC NULLS FIRST,
  series.function_name, series.platform NULLS LAST, series.color NULLS LAST,
  series.compilation_place, series.series_place
LIMIT (SELECT top_n FROM params);
