-- title: Bytes held at the peak by kind of allocation and phase of training
-- group: meaning
-- engines: duckdb, spark
--
-- Attributes every byte that is occupied at the peak to the kind of its allocation and to a phase:
-- forward, backward, rematerialised, optimizer. The rows of a module add up to its peak (query peak
-- tells how that is counted). For each run and function the module with the largest known peak is
-- shown. The phase comes from rules on the op_name in the table op_categories, which is yours to
-- edit.
--
-- wrong when: the rules do not fit the program. In a function that takes a gradient, all that lies
-- outside of it counts as optimizer, metrics and preparation of data included. XLA fuses and
-- merges: a fusion bears one name only, and a value of the forward pass that the backward pass
-- reads may bear a name of either. Copies and other instructions of the compiler have no op_name.
-- To jax 0.6 operations outside of any scope do not tell their phase and have none here, and to
-- jax 0.4.15 the gradient of a rematerialised scope counts as rematerialised.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 20: Rows to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this kind and phase [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp.
-- column category VARCHAR: Phase; NULL if no rule covers the op_name or there is none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
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
    peak_value_details.allocation_kind,
    op_name_categories.category
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_value_details
    ON peak_value_details.module_id = ranked_functions.module_id
    AND peak_value_details.color = ranked_functions.color
  LEFT JOIN op_name_categories
    ON op_name_categories.module_id = peak_value_details.module_id
    AND op_name_categories.op_name = peak_value_details.op_name
  WHERE ranked_functions.function_place <= params.top_functions
),
sums AS (
  SELECT
    keyed_values.function_place,
    keyed_values.allocation_kind,
    keyed_values.category,
    sum(keyed_values.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM keyed_values
  GROUP BY keyed_values.function_place, keyed_values.allocation_kind, keyed_values.category
),
ranked_sums AS (
  SELECT
    sums.function_place,
    sums.allocation_kind,
    sums.category,
    sums.held_bytes,
    sums.value_count,
    row_number() OVER (
      PARTITION BY sums.function_place
      ORDER BY sums.held_bytes DESC, sums.allocation_kind NULLS LAST, sums.category NULLS LAST
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
    ranked_sums.allocation_kind,
    ranked_sums.category,
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
    NULL AS allocation_kind,
    NULL AS category,
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
  answers.allocation_kind,
  answers.category,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
