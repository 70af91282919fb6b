-- title: First run of a series whose figure exceeds that of the run before
-- group: comparison
-- engines: duckdb, spark
--
-- Goes through the runs that compiled a function in order of the time of their dumps and finds the
-- first whose figure is more than factor times that of the run before: where did it break? One row
-- per function, platform and memory space that has such a run, largest growth first. Of several
-- compilations in a run the one with the largest peak counts. A run whose figure is unknown is
-- passed over: unknown_count tells how many were, and a function that has such runs and no run that
-- exceeds another has a row without one. Compare the two runs with bufdb diff.
--
-- wrong when: Times are those of the dump files; files that were copied without their times, or
-- runs ingested from one checkout, are out of order. Growth in small steps, each below the factor,
-- is not found. A new shape is no regression: signature_is_same tells whether the shapes of
-- arguments and result are those of the run before.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param figure VARCHAR = 'peak' | 'temps' | 'arguments' | 'outputs' | 'constants' |
--   'fragmentation': Figure to follow.
-- param factor DOUBLE = 1.05: Growth that counts: 1.05 is more than 5 percent.
-- param least_bytes BIGINT = 0: Growth in bytes that counts at least.
-- param top_n BIGINT = 50: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_name VARCHAR: The first run that exceeds the run before; like all below NULL if none
--   of those with a known figure does.
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
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('figure')::VARCHAR, 'peak') AS figure,
    coalesce(getvariable('factor')::DOUBLE, 1.05) AS factor,
    coalesce(getvariable('least_bytes')::BIGINT, 0) AS least_bytes,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
figures AS (
  SELECT
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.run_name,
    runs.dumped_at,
    module_signatures.entry_signature,
    -- Which of several compilations is the largest cannot be told without all their peaks.
    CASE
      WHEN function_modules.unknown_count = 0 OR function_modules.module_count = 1
        THEN CASE params.figure
          WHEN 'peak' THEN function_modules.peak_bytes
          WHEN 'temps' THEN function_modules.temp_bytes
          WHEN 'arguments' THEN function_modules.argument_bytes
          WHEN 'outputs' THEN function_modules.output_bytes
          WHEN 'constants' THEN function_modules.constant_bytes
          WHEN 'fragmentation' THEN function_modules.fragmentation_bytes
        END
    END AS figure_bytes,
    function_modules.unknown_reason
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
placed_figures AS (
  SELECT
    figures.function_name,
    figures.platform,
    figures.color,
    figures.run_name,
    figures.dumped_at,
    figures.entry_signature,
    figures.figure_bytes,
    row_number() OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
      ORDER BY figures.dumped_at NULLS LAST, figures.run_name
    ) AS place
  FROM figures
  WHERE figures.figure_bytes IS NOT NULL
),
compared_figures AS (
  SELECT
    placed_figures.function_name,
    placed_figures.platform,
    placed_figures.color,
    placed_figures.run_name,
    placed_figures.dumped_at,
    placed_figures.entry_signature,
    placed_figures.figure_bytes,
    placed_figures.place,
    lag(placed_figures.run_name) OVER (
      PARTITION BY placed_figures.function_name, placed_figures.platform, placed_figures.color
      ORDER BY placed_figures.place
    ) AS previous_run_name,
    lag(placed_figures.figure_bytes) OVER (
      PARTITION BY placed_figures.function_name, placed_figures.platform, placed_figures.color
      ORDER BY placed_figures.place
    ) AS previous_bytes,
    lag(placed_figures.entry_signature) OVER (
      PARTITION BY placed_figures.function_name, placed_figures.platform, placed_figures.color
      ORDER BY placed_figures.place
    ) AS previous_signature
  FROM placed_figures
),
regressions AS (
  SELECT
    compared_figures.function_name,
    compared_figures.platform,
    compared_figures.color,
    compared_figures.run_name,
    compared_figures.dumped_at,
    compared_figures.previous_run_name,
    compared_figures.previous_bytes,
    compared_figures.figure_bytes,
    compared_figures.entry_signature = compared_figures.previous_signature AS signature_is_same,
    row_number() OVER (
      PARTITION BY
        compared_figures.function_name, compared_figures.platform, compared_figures.color
      ORDER BY compared_figures.place
    ) AS regression_place,
    count(*) OVER (
      PARTITION BY
        compared_figures.function_name, compared_figures.platform, compared_figures.color
    ) AS regression_count
  FROM compared_figures
  CROSS JOIN params
  WHERE compared_figures.figure_bytes > compared_figures.previous_bytes * params.factor
    AND compared_figures.figure_bytes - compared_figures.previous_bytes >= params.least_bytes
),
unknown_figures AS (
  SELECT
    figures.function_name,
    coalesce(figures.platform, '') AS platform,
    coalesce(figures.color, -1) AS color,
    count(*) AS unknown_count,
    min(figures.unknown_reason) AS unknown_reason
  FROM figures
  WHERE figures.figure_bytes IS NULL
  GROUP BY figures.function_name, coalesce(figures.platform, ''), coalesce(figures.color, -1)
),
answers AS (
  SELECT
    regressions.function_name,
    regressions.platform,
    regressions.color,
    regressions.run_name,
    regressions.dumped_at,
    regressions.previous_run_name,
    regressions.previous_bytes,
    regressions.figure_bytes,
    regressions.signature_is_same,
    regressions.regression_count,
    coalesce(unknown_figures.unknown_count, 0) AS unknown_count,
    unknown_figures.unknown_reason
  FROM regressions
  LEFT JOIN unknown_figures
    ON unknown_figures.function_name = regressions.function_name
    AND unknown_figures.platform = coalesce(regressions.platform, '')
    AND unknown_figures.color = regressions.color
  WHERE regressions.regression_place = 1
  UNION ALL
  SELECT
    unknown_figures.function_name,
    nullif(unknown_figures.platform, '') AS platform,
    nullif(unknown_figures.color, -1) AS color,
    NULL AS run_name,
    NULL AS dumped_at,
    NULL AS previous_run_name,
    NULL AS previous_bytes,
    NULL AS figure_bytes,
    NULL AS signature_is_same,
    NULL AS regression_count,
    unknown_figures.unknown_count,
    unknown_figures.unknown_reason
  FROM unknown_figures
  WHERE NOT EXISTS (
    SELECT 1
    FROM regressions
    WHERE regressions.function_name = unknown_figures.function_name
      AND coalesce(regressions.platform, '') = unknown_figures.platform
      AND regressions.color = unknown_figures.color
  )
)
SELECT
  answers.function_name,
  answers.platform,
  answers.color,
  answers.run_name,
  answers.dumped_at,
  answers.previous_run_name,
  answers.previous_bytes,
  answers.figure_bytes,
  answers.figure_bytes - answers.previous_bytes AS delta_bytes,
  CAST(answers.figure_bytes - answers.previous_bytes AS DOUBLE)
    / nullif(answers.previous_bytes, 0) AS delta_ratio,
  answers.signature_is_same,
  answers.regression_count,
  answers.unknown_count,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.figure_bytes - answers.previous_bytes DESC NULLS FIRST,
  answers.function_name,
  answers.platform NULLS LAST,
  answers.color NULLS LAST
LIMIT (SELECT top_n FROM params);
