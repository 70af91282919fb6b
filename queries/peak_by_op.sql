-- title: Bytes held at the peak by scope of the operation
-- group: meaning
--
-- Attributes every byte that is occupied at the peak to the scope path (op_name) of the instruction
-- that defined the value there, so that the rows of a module add up to its peak (query peak tells
-- how that is counted). For each run and function the module with the largest known peak is shown.
-- Bytes without an op_name are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name. They are often half
-- of the temp bytes. A row for Net/dot_general has those whose first use that has an op_name is
-- Net/dot_general. They are never in the row Net/dot_general, which has what that itself makes.
--
-- A path is first brought to one spelling, whichever version of JAX wrote it: no primitive
-- parameters, no jit(main), of several merged names the first; an argument such as
-- opt_state[0].mu['w'] becomes opt_state/0/mu/w. With wrappers = 'strip' what JAX adds goes away as
-- well: jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, closed_call,
-- shard_map, and jvp(), transpose(), vmap() around a scope, so that forward, backward and
-- recomputed values of a layer come together. Query peak-by-category keeps these apart. Then depth
-- cuts it: 1 shows whole modules and arguments, 2 their parts.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param wrappers VARCHAR = 'strip' | 'keep': What to do with what JAX adds to a scope.
-- param depth BIGINT = 100: Elements of the path to keep.
-- param merge_numbers BOOLEAN = false: Whether numbers become *, so that layer_0 and layer_1 are
--   one.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Paths to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this path [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column op_path VARCHAR: Scopes and, if not cut off, the operation; "for PATH" where XLA made the
--   values; the kind of allocation in parentheses where there is no op_name.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('wrappers')::VARCHAR, 'strip') AS wrappers,
    coalesce(getvariable('depth')::BIGINT, 100) AS depth,
    coalesce(getvariable('merge_numbers')::BOOLEAN, FALSE) AS merge_numbers,
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
      regexp_replace(
        array_to_string(
          list_slice(
            string_split(
              CASE params.wrappers
                WHEN 'strip'
                  THEN coalesce(
                    peak_value_details.stripped_op_path,
                    CASE params.unnamed WHEN 'use' THEN 'for ' END
                      || named_uses.stripped_op_path
                  )
                ELSE
                  coalesce(
                    peak_value_details.op_path,
                    CASE params.unnamed WHEN 'use' THEN 'for ' END || named_uses.op_path
                  )
              END,
              '/'
            ),
            1,
            params.depth
          ),
          '/'
        ),
        CASE WHEN params.merge_numbers THEN '[0-9]+' ELSE '$^' END,
        '*',
        'g'
      ),
      '(' || peak_value_details.allocation_kind || ')'
    ) AS op_path
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_value_details
    ON peak_value_details.module_id = ranked_functions.module_id
    AND peak_value_details.color = ranked_functions.color
  LEFT JOIN named_uses
    ON named_uses.module_id = peak_value_details.module_id
    AND named_uses.value_id = peak_value_details.value_id
  WHERE ranked_functions.function_place <= params.top_functions
),
sums AS (
  SELECT
    keyed_values.function_place,
    keyed_values.op_path,
    sum(keyed_values.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM keyed_values
  GROUP BY keyed_values.function_place, keyed_values.op_path
),
ranked_sums AS (
  SELECT
    sums.function_place,
    sums.op_path,
    sums.held_bytes,
    sums.value_count,
    row_number() OVER (
      PARTITION BY sums.function_place
      ORDER BY sums.held_bytes DESC, sums.op_path NULLS LAST
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
    ranked_sums.op_path,
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
    NULL AS op_path,
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
  answers.op_path,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
