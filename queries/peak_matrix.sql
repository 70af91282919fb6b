-- title: Peak of every function in every run
-- group: runs
-- engines: duckdb, spark
--
-- One row per function, memory space and run, in long form: pivot it in a spreadsheet, or with
-- DuckDB's PIVOT, for a table of functions by runs. Of a function that a run compiled several times
-- the compilation with the largest peak counts. Functions with the largest peak come first, the
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
-- column color BIGINT: Memory space.
-- column run_name VARCHAR: The run.
-- column module_count BIGINT: Compilations in the run.
-- column peak_bytes HUGEINT: Largest peak [bytes]; NULL if none is known.
-- column peak_ratio DOUBLE: Peak divided by that of the function's first run; NULL if either is
--   unknown or the latter 0.
-- column temp_bytes HUGEINT: Temp allocations of that compilation [bytes].
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
    function_modules.module_count,
    function_modules.peak_bytes,
    function_modules.temp_bytes,
    max(function_modules.peak_bytes) OVER (
      PARTITION BY function_modules.function_name, function_modules.platform, function_modules.color
    ) AS largest_bytes,
    row_number() OVER (
      PARTITION BY function_modules.function_name, function_modules.platform, function_modules.color
      ORDER BY runs.dumped_at NULLS LAST, function_modules.run_name
    ) AS run_place,
    row_number() OVER (
      PARTITION BY function_modules.function_name, function_modules.platform, function_modules.color
      ORDER BY
        CASE WHEN function_modules.peak_bytes IS NULL THEN 1 ELSE 0 END,
        runs.dumped_at NULLS LAST,
        function_modules.run_name
    ) AS known_place
  FROM function_modules
  CROSS JOIN params
  JOIN runs ON runs.run_name = function_modules.run_name
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
    AND (params.color IS NULL OR function_modules.color = params.color)
),
compared_figures AS (
  SELECT
    figures.function_name,
    figures.platform,
    figures.color,
    figures.run_name,
    figures.module_count,
    figures.peak_bytes,
    figures.temp_bytes,
    figures.largest_bytes,
    figures.run_place,
    max(CASE WHEN figures.known_place = 1 THEN figures.peak_bytes END) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS first_bytes
  FROM figures
)
SELECT
  compared_figures.function_name,
  compared_figures.platform,
  compared_figures.color,
  compared_figures.run_name,
  compared_figures.module_count,
  compared_figures.peak_bytes,
  CAST(compared_figures.peak_bytes AS DOUBLE) / nullif(compared_figures.first_bytes, 0)
    AS peak_ratio,
  compared_figures.temp_bytes
FROM compared_figures
ORDER BY
  compared_figures.largest_bytes DESC NULLS LAST,
  compared_figures.function_name,
  compared_figures.platform NULLS LAST,
  compared_figures.color,
  compared_figures.run_place
LIMIT (SELECT top_n FROM params);
