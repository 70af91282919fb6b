-- title: One function over runs in order of time
-- group: runs
-- engines: duckdb, spark, sail
--
-- The figures of a function in each run that compiled it, in order of the time of the runs' dumps,
-- or of a label such as a version, with the change to the run before: where did the peak jump? Name
-- the function with the parameter function; without it all functions follow one another, those with
-- an unknown peak first, then those with the largest. Each of several compilations is followed
-- through those of the same signature, what is left by size, as bufdb diff pairs two runs (view
-- asked_series). Runs of other labels, such as another batch size, follow one another too:
-- changed_labels says where one differs from the run before, and fixed keeps them apart.
--
-- wrong when: Times are those of the dump files; files that were copied without their times, or
-- runs ingested from one checkout, are out of order. A change can come from a new shape as well as
-- from a new program: signature_is_same says whether the shapes of arguments and result are the
-- same. A function that was renamed begins a series of its own: of many runs, which names are one
-- would depend on the runs asked for. bufdb diff pairs those of two runs by signature and likeness.
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
-- param top_n BIGINT = 200: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column compilation_place BIGINT: Which of several compilations of the function, 1 the largest.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The run.
-- column label_value VARCHAR: Value of the label; NULL without label.
-- column fixed_labels VARCHAR: The labels that are equal within the series, as K=V separated by
--   blanks; NULL without fixed, or if the runs have none of them.
-- column changed_labels VARCHAR: Labels that are not as in the run before, as K=OLD>NEW separated
--   by blanks, - for none; NULL if they are the same, and without such a run.
-- column dumped_at TIMESTAMP: Earliest time of the run's dump files [UTC]; NULL if unknown.
-- column peak_bytes HUGEINT: Peak [bytes]; NULL if unknown.
-- column peak_change_bytes HUGEINT: Peak minus that of the run before [bytes]; NULL in the first
--   run and where either is unknown.
-- column peak_change_ratio DOUBLE: The same divided by the peak of the run before.
-- column temp_bytes HUGEINT: Temp allocations [bytes].
-- column argument_bytes HUGEINT: Parameters, donated ones included [bytes].
-- column output_bytes HUGEINT: Outputs, donated parameters included [bytes].
-- column signature_is_same BOOLEAN: Whether shapes of arguments and result are those of the run
--   before; NULL in the first run and where either is unknown.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
compared AS (
  SELECT
    series_place, place, function_name, platform, compilation_place, color, run_name, dumped_at,
    label_value, fixed_labels, peak_bytes, temp_bytes, argument_bytes, output_bytes,
    entry_signature, unknown_reason,
    lag(run_name) OVER (PARTITION BY series_place ORDER BY place) AS previous_run_name,
    lag(peak_bytes) OVER (PARTITION BY series_place ORDER BY place) AS previous_bytes,
    lag(entry_signature) OVER (PARTITION BY series_place ORDER BY place) AS previous_signature
  FROM asked_labelled_history
),
run_pairs AS (
  SELECT DISTINCT previous_run_name, run_name
  FROM compared
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
  compared.function_name, compared.platform, compared.compilation_place, compared.color,
  compared.run_name, compared.label_value, compared.fixed_labels,
  changes.changed_labels,
  compared.dumped_at,
  compared.peak_bytes,
  compared.peak_bytes - compared.previous_bytes AS peak_change_bytes,
  CAST(compared.peak_bytes - compared.previous_bytes AS DOUBLE)
    / nullif(compared.previous_bytes, 0) AS peak_change_ratio,
  compared.temp_bytes, compared.argument_bytes, compared.output_bytes,
  compared.entry_signature = compared.previous_signature AS signature_is_same,
  compared.unknown_reason
FROM compared
LEFT JOIN changes
  ON changes.previous_run_name = compared.previous_run_name
  AND changes.run_name = compared.run_name
ORDER BY compared.series_place, compared.place
LIMIT (SELECT top_n FROM params);
