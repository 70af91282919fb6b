-- title: One function over runs in order of time
-- group: runs
-- engines: duckdb, spark
--
-- The figures of a function in each run that compiled it, in order of the time of the runs' dumps,
-- with the change to the run before: where did the peak jump? Name the function with the parameter
-- function; without it all functions follow one another, those with an unknown peak first, then
-- those with the largest. Each of several compilations is followed through those of the same
-- signature, what is left by size, as bufdb diff pairs two runs (view asked_series).
--
-- wrong when: Times are those of the dump files; files that were copied without their times, or
-- runs ingested from one checkout, are out of order. A change can come from a new shape as well as
-- from a new program: signature_is_same says whether the shapes of arguments and result are the
-- same.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 200: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column compilation_place BIGINT: Which of several compilations of the function, 1 the largest.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The run.
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
    peak_bytes, temp_bytes, argument_bytes, output_bytes, entry_signature, unknown_reason,
    lag(peak_bytes) OVER (PARTITION BY series_place ORDER BY place) AS previous_bytes,
    lag(entry_signature) OVER (PARTITION BY series_place ORDER BY place) AS previous_signature
  FROM asked_history
)
SELECT
  function_name, platform, compilation_place, color, run_name, dumped_at, peak_bytes,
  peak_bytes - previous_bytes AS peak_change_bytes,
  CAST(peak_bytes - previous_bytes AS DOUBLE) / nullif(previous_bytes, 0) AS peak_change_ratio,
  temp_bytes, argument_bytes, output_bytes,
  entry_signature = previous_signature AS signature_is_same,
  unknown_reason
FROM compared
ORDER BY series_place, place
LIMIT (SELECT top_n FROM params);
