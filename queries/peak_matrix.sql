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
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
),
known_figures AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.module_count,
    CASE WHEN function_modules.unknown_count = 0 THEN function_modules.peak_bytes END AS peak_bytes,
    function_modules.temp_bytes,
    function_modules.unknown_reason
  FROM function_modules
),
figures AS (
  SELECT
    known_figures.function_name,
    known_figures.platform,
    known_figures.color,
    known_figures.run_name,
    known_figures.module_count,
    known_figures.peak_bytes,
    known_figures.temp_bytes,
    known_figures.unknown_reason,
    max(known_figures.peak_bytes) OVER (
      PARTITION BY known_figures.function_name, known_figures.platform, known_figures.color
    ) AS largest_bytes,
    row_number() OVER (
      PARTITION BY known_figures.function_name, known_figures.platform, known_figures.color
      ORDER BY runs.dumped_at NULLS LAST, known_figures.run_name
    ) AS run_place,
    row_number() OVER (
      PARTITION BY known_figures.function_name, known_figures.platform, known_figures.color
      ORDER BY
        CASE WHEN known_figures.peak_bytes IS NULL THEN 1 ELSE 0 END,
        runs.dumped_at NULLS LAST,
        known_figures.run_name
    ) AS known_place
  FROM known_figures
  CROSS JOIN params
  JOIN runs ON runs.run_name = known_figures.run_name
  WHERE (
    params.run IS NULL
    OR known_figures.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR known_figures.function_name GLOB params.function)
    AND (params.platform IS NULL OR known_figures.platform = params.platform)
    AND (
      params.color IS NULL
      OR known_figures.color IS NULL
      OR known_figures.color = params.color
    )
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
    figures.unknown_reason,
    figures.largest_bytes,
    figures.run_place,
    max(CASE WHEN figures.known_place = 1 THEN figures.peak_bytes END) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS first_bytes,
    count(figures.unknown_reason) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS unknown_count
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
  compared_figures.temp_bytes,
  compared_figures.unknown_reason
FROM compared_figures
ORDER BY
  CASE WHEN compared_figures.unknown_count = 0 THEN 1 ELSE 0 END,
  compared_figures.largest_bytes DESC NULLS LAST,
  compared_figures.function_name,
  compared_figures.platform NULLS LAST,
  compared_figures.color NULLS LAST,
  compared_figures.run_place
LIMIT (SELECT top_n FROM params);
