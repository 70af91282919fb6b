-- title: Peak of every function in every run
-- group: runs
-- engines: duckdb, spark
--
-- One row per function, memory space and run, in long form: pivot it in a spreadsheet, or with
-- DuckDB's PIVOT, for a table of functions by runs. Of a function that a run compiled several times
-- the compilation with the largest peak counts; if the peak of one of them is unknown, so is the
-- largest. Functions with the largest peak come first, before them those with an unknown one, the
-- runs of each in order of the time of their dumps; the ratio is to the first of these that has a
-- known peak.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 200: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The run.
-- column module_count BIGINT: Compilations in the run.
-- column peak_bytes HUGEINT: Largest peak [bytes]; NULL if a peak is unknown.
-- column peak_ratio DOUBLE: Peak divided by that of the function's first run; NULL if either is
--   unknown or the latter 0.
-- column temp_bytes HUGEINT: Temp allocations of the compilation with the largest known peak
--   [bytes]; NULL if no compilation has allocations.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
known_figures AS (
  SELECT
    series_place,
    peak_bytes AS first_bytes,
    row_number() OVER (PARTITION BY series_place ORDER BY place) AS known_place
  FROM asked_history
  WHERE peak_bytes IS NOT NULL
)
SELECT
  history.function_name, history.platform, history.color, history.run_name, history.module_count,
  history.peak_bytes,
  CAST(history.peak_bytes AS DOUBLE) / nullif(known_figures.first_bytes, 0) AS peak_ratio,
  history.temp_bytes, history.unknown_reason
FROM asked_history AS history
LEFT JOIN known_figures
  ON known_figures.series_place = history.series_place
  AND known_figures.known_place = 1
ORDER BY history.series_place, history.place
LIMIT (SELECT top_n FROM params);
