-- title: One function over runs in order of time
-- group: runs
-- engines: duckdb, spark
--
-- The figures of a function in each run that compiled it, in order of the time of the runs' dumps,
-- with the change to the run before: where did the peak jump? Name the function with the parameter
-- function; without it all functions follow one another, those with an unknown peak first, then
-- those with the largest. Of several compilations in a run the one with the largest peak counts; if
-- the peak of one of them is unknown, so is the largest, and the other figures are those of the
-- largest known.
--
-- wrong when: Times are those of the dump files; files that were copied without their times, or
-- runs ingested from one checkout, are out of order. A change can come from a new shape as well as
-- from a new program: signature_is_same tells whether the shapes of arguments and result are the
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
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
figures AS (
  SELECT
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.run_name,
    runs.dumped_at,
    CASE WHEN function_modules.unknown_count = 0 THEN function_modules.peak_bytes END AS peak_bytes,
    function_modules.unknown_reason,
    function_modules.temp_bytes,
    function_modules.argument_bytes,
    function_modules.output_bytes,
    module_signatures.entry_signature,
    row_number() OVER (
      PARTITION BY function_modules.function_name, function_modules.platform, function_modules.color
      ORDER BY runs.dumped_at NULLS LAST, function_modules.run_name
    ) AS place
  FROM function_modules
  CROSS JOIN params
  JOIN runs ON runs.run_name = function_modules.run_name
  JOIN module_signatures ON module_signatures.module_id = function_modules.module_id
  WHERE (
    params.run IS NULL
    OR function_modules.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
),
compared_figures AS (
  SELECT
    figures.function_name,
    figures.platform,
    figures.color,
    figures.run_name,
    figures.dumped_at,
    figures.peak_bytes,
    figures.unknown_reason,
    figures.temp_bytes,
    figures.argument_bytes,
    figures.output_bytes,
    figures.entry_signature,
    figures.place,
    lag(figures.peak_bytes) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
      ORDER BY figures.place
    ) AS previous_bytes,
    max(figures.peak_bytes) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS largest_bytes,
    count(figures.unknown_reason) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS unknown_count,
    lag(figures.entry_signature) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
      ORDER BY figures.place
    ) AS previous_signature
  FROM figures
)
SELECT
  compared_figures.function_name,
  compared_figures.platform,
  compared_figures.color,
  compared_figures.run_name,
  compared_figures.dumped_at,
  compared_figures.peak_bytes,
  compared_figures.peak_bytes - compared_figures.previous_bytes AS peak_change_bytes,
  CAST(compared_figures.peak_bytes - compared_figures.previous_bytes AS DOUBLE)
    / nullif(compared_figures.previous_bytes, 0) AS peak_change_ratio,
  compared_figures.temp_bytes,
  compared_figures.argument_bytes,
  compared_figures.output_bytes,
  compared_figures.entry_signature = compared_figures.previous_signature AS signature_is_same,
  compared_figures.unknown_reason
FROM compared_figures
ORDER BY
  CASE WHEN compared_figures.unknown_count = 0 THEN 1 ELSE 0 END,
  compared_figures.largest_bytes DESC NULLS LAST,
  compared_figures.function_name,
  compared_figures.platform NULLS LAST,
  compared_figures.color NULLS LAST,
  compared_figures.place
LIMIT (SELECT top_n FROM params);
