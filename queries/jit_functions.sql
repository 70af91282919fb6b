-- title: Jitted functions with their compilations and range of peaks
-- group: overview
-- engines: duckdb, spark
--
-- One row per function and memory space over all its compilations in all runs, largest peak first,
-- unknown ones before all others. The median is the lower one of the two middle peaks if their
-- number is even. If the peak of one compilation is unknown, so are the smallest, the median and
-- the largest of all; query modules has those that are known.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 100: Rows to return.
--
-- column function_name VARCHAR: Jitted function; NULL for modules of which it is unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_count BIGINT: Runs that compiled it.
-- column module_count BIGINT: Compilations.
-- column signature_count BIGINT: Different signatures (shapes of arguments and result) among them;
--   NULL if no dump tells one.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column median_peak_bytes HUGEINT: Median peak [bytes]; NULL if a peak is unknown.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL if a peak is unknown.
-- column max_temp_bytes HUGEINT: Largest sum of temp allocations [bytes]; NULL if no compilation
--   has allocations.
-- column unknown_count BIGINT: Compilations whose peak is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
figures AS (
  SELECT
    memory_figures.function_name,
    memory_figures.color,
    memory_figures.run_name,
    memory_figures.peak_bytes,
    memory_figures.temp_bytes,
    memory_figures.peak_unknown_reason,
    module_signatures.entry_signature,
    row_number() OVER (
      PARTITION BY memory_figures.function_name, memory_figures.color
      ORDER BY memory_figures.peak_bytes NULLS LAST, memory_figures.module_id
    ) AS place,
    count(*) OVER (PARTITION BY memory_figures.function_name, memory_figures.color) AS peak_count
  FROM memory_figures
  JOIN module_signatures ON module_signatures.module_id = memory_figures.module_id
  CROSS JOIN params
  WHERE (
    params.run IS NULL
    OR memory_figures.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR memory_figures.function_name GLOB params.function)
    AND (params.platform IS NULL OR memory_figures.platform = params.platform)
    AND (
      params.color IS NULL
      OR memory_figures.color IS NULL
      OR memory_figures.color = params.color
    )
),
functions AS (
  SELECT
    figures.function_name,
    figures.color,
    count(DISTINCT figures.run_name) AS run_count,
    count(*) AS module_count,
    nullif(count(DISTINCT figures.entry_signature), 0) AS signature_count,
    count(figures.peak_unknown_reason) AS unknown_count,
    min(figures.peak_unknown_reason) AS unknown_reason,
    min(figures.peak_bytes) AS min_peak_bytes,
    min(figures.peak_bytes) FILTER (WHERE figures.place = (figures.peak_count + 1) // 2)
      AS median_peak_bytes,
    max(figures.peak_bytes) AS max_peak_bytes,
    max(figures.temp_bytes) AS max_temp_bytes
  FROM figures
  GROUP BY figures.function_name, figures.color
),
ranked_functions AS (
  SELECT
    functions.function_name,
    functions.color,
    functions.run_count,
    functions.module_count,
    functions.signature_count,
    CASE WHEN functions.unknown_count = 0 THEN functions.min_peak_bytes END AS min_peak_bytes,
    CASE WHEN functions.unknown_count = 0 THEN functions.median_peak_bytes END
      AS median_peak_bytes,
    CASE WHEN functions.unknown_count = 0 THEN functions.max_peak_bytes END AS max_peak_bytes,
    functions.max_temp_bytes,
    functions.unknown_count,
    functions.unknown_reason,
    row_number() OVER (
      ORDER BY
        CASE WHEN functions.unknown_count = 0 THEN 1 ELSE 0 END,
        functions.max_peak_bytes DESC NULLS LAST,
        functions.max_temp_bytes DESC NULLS LAST,
        functions.function_name NULLS LAST,
        functions.color NULLS LAST
    ) AS place
  FROM functions
)
SELECT
  ranked_functions.function_name,
  ranked_functions.color,
  ranked_functions.run_count,
  ranked_functions.module_count,
  ranked_functions.signature_count,
  ranked_functions.min_peak_bytes,
  ranked_functions.median_peak_bytes,
  ranked_functions.max_peak_bytes,
  ranked_functions.max_temp_bytes,
  ranked_functions.unknown_count,
  ranked_functions.unknown_reason
FROM ranked_functions
CROSS JOIN params
WHERE ranked_functions.place <= params.top_n
ORDER BY ranked_functions.place;
