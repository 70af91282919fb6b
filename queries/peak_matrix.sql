-- title: Peak of every function in every run
-- group: change
-- engines: duckdb, spark, sail
--
-- One row per function, memory space and run, in long form: pivot it in a spreadsheet, or with
-- DuckDB's PIVOT, for a table of functions by runs. If there are several compilations, each is
-- followed through those of the same signature, the rest by size, as bufdb diff pairs two runs
-- (view asked_series). Functions with an unknown peak come first, then those with the largest peak,
-- the runs of each in order of the time of their dumps; the ratio is to the first run with a known
-- peak.
--
-- param run, function, platform, color, module, top_n = 200
--
-- column function_name, platform, compilation_place
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name
-- column peak_bytes HUGEINT: Peak [bytes]; NULL if unknown.
-- column peak_ratio DOUBLE: Peak divided by that of the function's first run; NULL if either is
--   unknown or the latter is 0.
-- column temp_bytes HUGEINT: Temp allocations of the compilation with the largest need
--   [bytes]; NULL if no compilation has allocations.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
history AS (
  SELECT
    series_place, place, function_name, platform, compilation_place, color, run_name, peak_bytes,
    temp_bytes, unknown_reason,
    min(CASE WHEN peak_bytes IS NOT NULL THEN place END) OVER (PARTITION BY series_place)
      AS known_place
  FROM asked_history
)
SELECT
  function_name, platform, compilation_place, color, run_name, peak_bytes,
  CAST(peak_bytes AS DOUBLE) / nullif(
    max(CASE WHEN place = known_place THEN peak_bytes END) OVER (PARTITION BY series_place), 0
  ) AS peak_ratio,
  temp_bytes, unknown_reason
FROM history
ORDER BY series_place, place
LIMIT (SELECT top_n FROM params);
