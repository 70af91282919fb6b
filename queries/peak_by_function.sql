-- title: Bytes held at the peak by Python or jitted function
-- group: meaning
-- engines: duckdb, spark
--
-- Attributes every byte that is occupied at the peak to a function, so that the rows of a module
-- add up to its peak (query peak tells how that is counted). For each run and function the module
-- with the largest peak is shown.
--
-- With by = 'python' it is the Python function that holds the innermost line of the call stack that
-- is not library code, known from jaxlib 0.8.2 on where the HLO text was dumped too; before, only
-- the file is. With by = 'jit' it is the chain of jitted functions in the op_name, outermost first:
-- step/_where for jit(step)/jit(_where)/select_n. Bytes without a function, such as those of
-- parameters, are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name. They are often half
-- of the temp bytes. A row for Net.__call__ has those whose first use that has an op_name is in
-- Net.__call__. They are never in the row Net.__call__, which has what the function itself makes.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param by VARCHAR = 'python' | 'jit': Which function.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Functions to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this function [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column source_function VARCHAR: Python function (with its class and outer function) or chain of
--   jitted functions; NULL if only the file is known; "for FUNCTION" or "for FILE" where XLA made
--   the values; the kind of allocation in parentheses where nothing is known.
-- column source_file VARCHAR: File of the Python function; NULL if unknown or by = 'jit'.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('by')::VARCHAR, 'python') AS "by",
    coalesce(getvariable('unnamed')::VARCHAR, 'use') AS unnamed,
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
    coalesce(
      CASE params.by
        WHEN 'python' THEN own_frames.function_name
        WHEN 'jit' THEN peak_value_details.jit_path
      END,
      CASE
        WHEN params.by = 'jit' OR peak_value_details.own_source_file IS NULL
          THEN coalesce(
            CASE params.unnamed WHEN 'use' THEN 'for ' END
              || CASE params.by
                WHEN 'python'
                  THEN coalesce(named_uses.own_function_name, named_uses.own_source_file)
                WHEN 'jit' THEN named_uses.jit_path
              END,
            '(' || peak_value_details.allocation_kind || ')'
          )
      END
    ) AS source_function,
    CASE
      WHEN params.by = 'python'
        THEN coalesce(
          peak_value_details.own_source_file,
          CASE params.unnamed WHEN 'use' THEN named_uses.own_source_file END
        )
    END AS source_file
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_value_details
    ON peak_value_details.module_id = ranked_functions.module_id
    AND peak_value_details.color = ranked_functions.color
  LEFT JOIN named_uses
    ON named_uses.module_id = peak_value_details.module_id
    AND named_uses.value_id = peak_value_details.value_id
  LEFT JOIN stack_frames
    ON stack_frames.module_id = peak_value_details.module_id
    AND stack_frames.stack_frame_id = peak_value_details.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
  WHERE ranked_functions.function_place <= params.top_functions
),
sums AS (
  SELECT
    keyed_values.function_place,
    keyed_values.source_function,
    keyed_values.source_file,
    sum(keyed_values.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM keyed_values
  GROUP BY keyed_values.function_place, keyed_values.source_function, keyed_values.source_file
),
ranked_sums AS (
  SELECT
    sums.function_place,
    sums.source_function,
    sums.source_file,
    sums.held_bytes,
    sums.value_count,
    row_number() OVER (
      PARTITION BY sums.function_place
      ORDER BY sums.held_bytes DESC, sums.source_function NULLS LAST, sums.source_file NULLS LAST
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
    ranked_sums.source_function,
    ranked_sums.source_file,
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
    NULL AS source_function,
    NULL AS source_file,
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
  answers.source_function,
  answers.source_file,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
