-- title: Bytes held at the peak by scope of the operation
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to the scope path (op_name) of the instruction
-- that defined the value there, so that the rows of a module add up to its peak (query peak says
-- how that is counted). For each run and function the module with the largest need is shown.
-- Bytes without an op_name are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name. They are often half
-- of the temp bytes. A row for Net/dot_general has those whose first use that has an op_name is
-- Net/dot_general. They are never in the row Net/dot_general, which has what that itself makes.
--
-- What a loop carries is attributed to the operation that makes the data: saved Layer/tanh has what
-- each step makes there and the loop stacks (query peak-by-source-line says more).
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
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param wrappers VARCHAR = 'strip' | 'keep': What to do with what JAX adds to a scope.
-- param depth BIGINT = 100: Elements of the path to keep.
-- param merge_numbers BOOLEAN = false: Whether numbers become *, so that layer_0 and layer_1 are
--   one.
-- param loops VARCHAR = 'origin' | 'carrier': Whose line counts for what a loop carries: origin is
--   the one that makes the data, carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Paths to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this path [bytes].
-- column low_saving_bytes HUGEINT: The least of the next (query savings) [bytes], below 0 where it
--   costs more than it frees; NULL where it is not known.
-- column saving_bytes HUGEINT: By how much the peak would fall without them (query savings)
--   [bytes]; NULL where no op is known and with other wrappers, depth, merge_numbers, loops or
--   unnamed than by default.
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column op_path VARCHAR: Scopes and, if not cut off, the operation; "for PATH" where XLA made the
--   values; the kind of allocation in parentheses where there is no op_name.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('wrappers')::VARCHAR, 'strip') AS wrappers,
    coalesce(getvariable('depth')::BIGINT, 100) AS depth,
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('unnamed')::VARCHAR, 'use') AS unnamed,
    coalesce(getvariable('merge_numbers')::BOOLEAN, FALSE) AS merge_numbers,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
paths AS (
  SELECT
    array_to_string(
      list_slice(
        string_split(
          CASE params.wrappers
            WHEN 'strip' THEN held.attributed_stripped_op_path
            ELSE held.attributed_op_path
          END,
          '/'
        ),
        1,
        params.depth
      ),
      '/'
    ) AS op_path,
    held.allocation_kind,
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes, held.module_id
  FROM attributed_peak_values AS held
  CROSS JOIN params
  WHERE held.function_place <= params.top_functions
),
scoped AS (
  SELECT
    coalesce(
      CASE
        WHEN params.merge_numbers THEN regexp_replace(held.op_path, '[0-9]+', '*', 'g')
        ELSE held.op_path
      END,
      CASE
        WHEN held.held_bytes IS NOT NULL
          THEN '(' || coalesce(held.allocation_kind, 'kind unknown') || ')'
      END
    ) AS op_path,
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes, held.module_id
  FROM paths AS held
  CROSS JOIN params
),
ops AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, op_path,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY sum(held_bytes) DESC, op_path NULLS LAST
    ) AS place
  FROM scoped
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, op_path
)
SELECT
  ops.run_name, ops.function_name, ops.platform, ops.color, ops.peak_bytes, ops.held_bytes,
  savings.low_saving_bytes, savings.saving_bytes,
  CAST(ops.held_bytes AS DOUBLE) / nullif(ops.peak_bytes, 0) AS held_ratio,
  ops.value_count, ops.op_path, ops.unknown_reason
FROM ops
CROSS JOIN params
LEFT JOIN peak_savings AS savings
  ON savings.module_id = ops.module_id
  AND savings.color = ops.color
  AND savings.what = 'op'
  AND savings.name = ops.op_path
  AND params.wrappers = 'strip' AND params.loops = 'origin' AND params.unnamed = 'use'
  AND params.depth = 100 AND NOT params.merge_numbers
WHERE ops.place <= params.top_n OR ops.unknown_reason IS NOT NULL
ORDER BY ops.function_place, ops.name_place, ops.place;
