-- title: One function over runs in order of time, or its first regression
-- group: change
-- engines: duckdb, spark, sail
--
-- Shows the figures of a function in each run that compiled it, in order of the time of the runs'
-- dumps or of a label such as a version, with the change from the run before: where did the peak
-- jump? Select the function with the parameter function; otherwise all functions are listed, those
-- with an unknown peak first, then those with the largest. If there are several compilations, each
-- is followed through those of the same signature, the rest by size, as bufdb diff pairs two runs
-- (view asked_series). Runs with other labels, such as another batch size, are in the same series:
-- changed_labels shows the differences from the run before, and fixed separates them.
--
-- With only = 'regressions', shows the first run of each series whose figure is more than factor
-- times that of the run before, largest growth first: where did it break? Runs with an unknown
-- figure are skipped and counted in unknown_count; a series with such runs and no regression has a
-- row without a run. Compare the two runs with bufdb diff.
--
-- wrong when: Growth in small steps, each below the factor, is not a regression. Times are those of
-- the dump files; files that were copied without their times, or runs ingested from one checkout,
-- are out of order. A change can come from a new shape as well as from a new program:
-- signature_is_same shows whether the shapes of arguments and result are the same. A function that
-- was renamed begins a series of its own: of many runs, which names are one would depend on the
-- runs asked for. bufdb diff pairs those of two runs by signature and likeness.
--
-- param run, function, platform, color, module
-- param label VARCHAR = NULL: Only runs that have this label, in its order: by value if all are
--   numbers, or versions such as 0.9.1 and 0.10.0; else, and NULL, by the time of the dumps.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a series; NULL
--   for none.
-- param only VARCHAR = 'runs' | 'regressions': Whether to show all runs, or the first regression of
--   each series.
-- param figure VARCHAR = 'peak' | 'temps' | 'arguments' | 'outputs' | 'constants' |
--   'fragmentation': Figure to follow.
-- param factor DOUBLE = 1.05: Growth factor of a regression: 1.05 means more than 5 percent.
-- param least_bytes BIGINT = 0: Smallest growth that is a regression [bytes].
-- param top_n = 200
--
-- column function_name, platform, compilation_place
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The run; NULL, like all columns below, if no run of the series with a
--   known figure is a regression.
-- column label_value VARCHAR: Value of the label; NULL without label.
-- column fixed_labels VARCHAR: The labels that are equal within the series, as K=V separated by
--   spaces; NULL without fixed, or if the runs have none of them.
-- column changed_labels VARCHAR: Labels that differ from the run before, as K=OLD>NEW separated by
--   spaces, - for none; NULL if they are the same, and without such a run.
-- column dumped_at TIMESTAMP: Earliest time of the run's dump files [UTC]; NULL if unknown.
-- column peak_bytes HUGEINT: Peak [bytes]; NULL if unknown.
-- column peak_change_bytes HUGEINT: Peak minus that of the run before [bytes]; NULL in the first
--   run and where either is unknown.
-- column peak_change_ratio DOUBLE: The same divided by the peak of the run before.
-- column temp_bytes HUGEINT: Temp allocations [bytes].
-- column argument_bytes HUGEINT: Parameters, including donated ones [bytes].
-- column output_bytes HUGEINT: Outputs, including donated parameters [bytes].
-- column signature_is_same BOOLEAN: Whether shapes of arguments and result are those of the run
--   before; NULL in the first run and where either is unknown.
-- column previous_run_name VARCHAR: The run before; with only = 'regressions', the last one before
--   with a known figure. NULL in the first run.
-- column previous_bytes HUGEINT: The figure in the run before [bytes]; NULL if unknown.
-- column figure_bytes HUGEINT: The figure in this run [bytes]; NULL if unknown.
-- column delta_bytes HUGEINT: The difference [bytes]; NULL where either is unknown.
-- column delta_ratio DOUBLE: The same divided by previous_bytes; NULL where delta_bytes is, and if
--   those are 0.
-- column regression_count BIGINT: Runs of the series that exceed the run before them; NULL without
--   only = 'regressions'.
-- column unknown_count BIGINT: Runs of the series whose figure is unknown.
-- column unknown_reason VARCHAR: Why the peak of the run is unknown; with only = 'regressions', why
--   figures of the series are (for several, the first reason in alphabetical order); NULL if known.
--
-- alias first-regression = series -p only regressions -p top_n 50: function_name, platform,
--   compilation_place, color, run_name, label_value, fixed_labels, changed_labels, dumped_at,
--   previous_run_name, previous_bytes, figure_bytes, delta_bytes, delta_ratio, signature_is_same,
--   regression_count, unknown_count, unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('only')::VARCHAR, 'runs') AS only,
    coalesce(getvariable('figure')::VARCHAR, 'peak') AS figure,
    coalesce(getvariable('factor')::DOUBLE, 1.05) AS factor,
    coalesce(getvariable('least_bytes')::BIGINT, 0) AS least_bytes,
    coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
figures AS (
  SELECT
    series_place, place, function_name, platform, compilation_place, color, run_name, dumped_at,
    label_value, fixed_labels, peak_bytes, temp_bytes, argument_bytes, output_bytes,
    entry_signature, unknown_reason,
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
    series_place, place, run_name, dumped_at, label_value, peak_bytes, temp_bytes, argument_bytes,
    output_bytes, entry_signature, unknown_reason, figure_bytes,
    lag(run_name) OVER (PARTITION BY series_place ORDER BY place) AS previous_run_name,
    lag(peak_bytes) OVER (PARTITION BY series_place ORDER BY place) AS previous_peak_bytes,
    lag(figure_bytes) OVER (PARTITION BY series_place ORDER BY place) AS previous_bytes,
    lag(entry_signature) OVER (PARTITION BY series_place ORDER BY place) AS previous_signature
  FROM figures
  CROSS JOIN params
  WHERE params.only = 'runs' OR figure_bytes IS NOT NULL
),
regressions AS (
  SELECT
    series_place,
    min(place) AS first_place,
    count(*) AS regression_count
  FROM compared
  CROSS JOIN params
  WHERE params.only = 'regressions'
    AND figure_bytes > previous_bytes * params.factor
    AND figure_bytes - previous_bytes >= params.least_bytes
  GROUP BY series_place
),
shown AS (
  SELECT
    compared.series_place, compared.place, compared.run_name, compared.dumped_at,
    compared.label_value, compared.peak_bytes, compared.temp_bytes, compared.argument_bytes,
    compared.output_bytes, compared.entry_signature, compared.unknown_reason,
    compared.figure_bytes, compared.previous_run_name, compared.previous_peak_bytes,
    compared.previous_bytes, compared.previous_signature, regressions.regression_count
  FROM compared
  CROSS JOIN params
  LEFT JOIN regressions
    ON regressions.series_place = compared.series_place
    AND regressions.first_place = compared.place
  WHERE params.only = 'runs' OR regressions.first_place IS NOT NULL
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
  FROM shown
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
  shown.run_name, shown.label_value, series.fixed_labels, changes.changed_labels,
  shown.dumped_at, shown.peak_bytes,
  shown.peak_bytes - shown.previous_peak_bytes AS peak_change_bytes,
  CAST(shown.peak_bytes - shown.previous_peak_bytes AS DOUBLE)
    / nullif(shown.previous_peak_bytes, 0) AS peak_change_ratio,
  shown.temp_bytes, shown.argument_bytes, shown.output_bytes,
  shown.entry_signature = shown.previous_signature AS signature_is_same,
  shown.previous_run_name, shown.previous_bytes, shown.figure_bytes,
  shown.figure_bytes - shown.previous_bytes AS delta_bytes,
  CAST(shown.figure_bytes - shown.previous_bytes AS DOUBLE) / nullif(shown.previous_bytes, 0)
    AS delta_ratio,
  shown.regression_count, series.unknown_count,
  CASE params.only WHEN 'runs' THEN shown.unknown_reason ELSE series.unknown_reason END
    AS unknown_reason
FROM series
CROSS JOIN params
LEFT JOIN shown ON shown.series_place = series.series_place
LEFT JOIN changes
  ON changes.previous_run_name = shown.previous_run_name
  AND changes.run_name = shown.run_name
WHERE shown.place IS NOT NULL OR series.unknown_count > 0
ORDER BY
  CASE params.only WHEN 'runs' THEN series.series_place END,
  CASE params.only WHEN 'runs' THEN shown.place END,
  shown.figure_bytes - shown.previous_bytes DESC NULLS FIRST,
  series.function_name, series.platform NULLS LAST, series.color NULLS LAST,
  series.compilation_place, series.series_place
LIMIT (SELECT top_n FROM params);
