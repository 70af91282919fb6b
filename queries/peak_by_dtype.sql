-- title: Bytes held at the peak by element type
-- group: meaning
-- engines: duckdb, spark
--
-- Attributes every byte that is occupied at the peak to the element type of the value there, so
-- that the rows of a module add up to its peak (query peak tells how that is counted). For each run
-- and function the module with the largest known peak is shown.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Element types to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this type [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column dtype VARCHAR: Element type, or tuple for tables of pointers; NULL where the shape is not
--   known.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
ranked_functions AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.module_id,
    function_modules.color,
    function_modules.peak_bytes,
    row_number() OVER (
      ORDER BY
        function_modules.peak_bytes DESC, function_modules.run_name, function_modules.function_name,
        function_modules.color, function_modules.platform NULLS LAST
    ) AS function_place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.peak_bytes <> 0
    AND (
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
keyed_values AS (
  SELECT
    ranked_functions.function_place,
    peak_value_details.held_bytes,
    peak_value_details.dtype
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_value_details
    ON peak_value_details.module_id = ranked_functions.module_id
    AND peak_value_details.color = ranked_functions.color
  WHERE ranked_functions.function_place <= params.top_functions
),
sums AS (
  SELECT
    keyed_values.function_place,
    keyed_values.dtype,
    sum(keyed_values.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM keyed_values
  GROUP BY keyed_values.function_place, keyed_values.dtype
),
ranked_sums AS (
  SELECT
    sums.function_place,
    sums.dtype,
    sums.held_bytes,
    sums.value_count,
    row_number() OVER (
      PARTITION BY sums.function_place
      ORDER BY sums.held_bytes DESC, sums.dtype NULLS LAST
    ) AS sum_place
  FROM sums
),
answers AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_functions.peak_bytes,
    ranked_sums.held_bytes,
    CAST(ranked_sums.held_bytes AS DOUBLE) / nullif(ranked_functions.peak_bytes, 0) AS held_ratio,
    ranked_sums.value_count,
    ranked_sums.dtype,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY ranked_sums.function_place, ranked_sums.sum_place) AS place
  FROM ranked_sums
  CROSS JOIN params
  JOIN ranked_functions ON ranked_functions.function_place = ranked_sums.function_place
  WHERE ranked_sums.sum_place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS peak_bytes,
    NULL AS held_bytes,
    NULL AS held_ratio,
    NULL AS value_count,
    NULL AS dtype,
    function_modules.unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.unknown_count > 0
    AND (
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
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.peak_bytes,
  answers.held_bytes,
  answers.held_ratio,
  answers.value_count,
  answers.dtype,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
