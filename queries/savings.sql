-- title: How far the peak falls without a line, an op, a value
-- group: saving
-- engines: duckdb, spark, sail
--
-- Removing a line that holds 5 GiB at the peak need not lower it by 5 GiB: another instant may be
-- nearly as high. For each source line, op and value that holds temp bytes at the peak, computes
-- the peak of the same instructions in the same order if it held none: saving_bytes and
-- peak_bytes_without add up to the peak, and next_peak_instruction shows what limits the saving.
-- For what a scan saves for its backward pass, something else is saved instead, so the saving is a
-- range from low_saving_bytes, for the change that saving_form names (jax.checkpoint around the
-- expression, or one name fewer in the existing policy) with the values of kept_name kept instead,
-- to saving_bytes, if operands are recomputed too. Names are those of peak-by by line and by op;
-- values that are the same bytes under several names, such as the carry of a loop, are one. Shows
-- the module with the largest need for each run and function, largest lower bound first
-- (saving_bytes where it is unknown). Savings do not add up: bufdb what-if computes several
-- together.
--
-- wrong when: The figure is exact for the current schedule, where no change to this alone saves
-- more. XLA schedules, fuses and packs a changed program again, and what is recomputed or copied to
-- the host needs its own bytes, so for a recompilation it is a prediction. No dump shows what a
-- first policy saves: it also changes what other lines save, and only tracing the changed program
-- shows that. These save nothing, whatever the figure: inputs of a scanned layer, which a scan
-- saves under any checkpoint policy; bf16 for a buffer that is already bf16; on the CPU bf16 for
-- what a scan stacks, which becomes f32 before the backward loop, and checkpoints of unrolled
-- layers, where the recomputation is merged. In the measurements below they count as 0. Of 51 lines
-- removed from scanned layers on the CPU, 49 were in the range within 2 % of the peak; in the
-- others XLA had merged equal instructions of two lines, and only one line is known. Gradients have
-- the line of what they are gradients of, and no policy frees them.
--
-- Measured error of recompiled changes, in percent of the peak (median, 90th percentile, largest;
-- data/studies/recompiled.md has each change): chunk, layers scanned: CPU 0.0, 0.9, 0.9; GPU 0.4,
-- 5.0, 5.0; TPU 1.6, 4.8, 4.8. donate, layers scanned: CPU 0.2, 0.6, 0.6; GPU 0.0, 1.6, 1.6; TPU
-- 0.0, 4.0, 4.0. donate, layers unrolled: CPU 2.5, 3.3, 3.3; GPU 2.6, 3.0, 3.0; TPU 0.0, 0.0, 0.0.
-- drop, an input of a scanned layer: CPU 0.0, 0.0, 0.0; GPU 0.0, 0.0, 0.0; TPU 0.0, 0.0, 0.0. drop,
-- layers scanned: CPU 1.3, 3.9, 3.9; GPU 1.1, 3.1, 6.8; TPU 1.5, 8.4, 10.6. drop, layers unrolled:
-- CPU 0.0, 19.3, 19.3; GPU 2.7, 15.3, 18.2; TPU 5.2, 13.6, 16.7. half, layers scanned: CPU 0.0,
-- 2.0, 2.0; GPU 0.0, 3.4, 3.4; TPU 0.0, 2.4, 2.4. half, layers unrolled: CPU 1.2, 12.1, 12.1; GPU
-- 1.3, 7.5, 7.5; TPU 1.4, 9.6, 9.6.
--
-- param run, function, platform, color, module
-- param what VARCHAR = 'all' | 'source_line' | 'op' | 'value': What to show.
-- param rank_by VARCHAR = 'auto' | 'saving' | 'cost': What comes first: saving is the largest
--   lower bound. cost is the most bytes per millisecond that a profile measured for the
--   recomputation, without a profile per operation; rows that save at most a hundredth of the peak,
--   or with an unknown cost, come last. auto is cost where the module was timed, else saving.
-- param top_functions = 1
-- param top_n BIGINT = 5: Rows to show of each kind.
--
-- column run_name, function_name, platform, color
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column what VARCHAR: source_line, op or value.
-- column held_bytes HUGEINT: Bytes held at the peak [bytes].
-- column low_saving_bytes HUGEINT: Lower bound of how far it falls, with saving_form [bytes],
--   negative where that costs more than it frees; NULL if unknown (low_unknown_reason).
-- column saving_bytes HUGEINT: How far the peak would fall [bytes].
-- column half_saving_bytes HUGEINT: How far it would fall with half of the bytes, as with bf16 for
--   f32, or two chunks [bytes].
-- column peak_bytes_without HUGEINT: The peak without it [bytes].
-- column next_peak_time BIGINT: First instant of that peak [program order].
-- column next_peak_instruction VARCHAR: Instruction at that instant; NULL if there is none.
-- column name VARCHAR: Line or op as in peak-by; for a value, the instruction, the place in its
--   tuple and the shape. bufdb what-if --without accepts it after line:, op: or value:.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   fewer in the existing policy); NULL where low_saving_bytes is.
-- column kept_name VARCHAR: Lines whose values are kept instead, at the lower bound; NULL if there
--   are none.
-- column low_operation_count BIGINT: Operations that recompute it, at the lower bound, those that
--   several values need counted once; NULL if unknown.
-- column operation_count BIGINT: The same at the upper bound; NULL if unknown.
-- column low_recompute_ns BIGINT: Measured time of the instructions that recompute it in one run,
--   at the lower bound [nanoseconds] (recompute_times); NULL if one was not timed.
-- column recompute_ns BIGINT: The same at the upper bound [nanoseconds]; NULL if one was not timed.
-- column saving_bytes_per_ms DOUBLE: Bytes saved per millisecond, at the lower bound if it is
--   known, else at the upper; NULL if it was not timed, and for values of the backward pass.
-- column ranked_by VARCHAR: What the rows of the module are ranked by: time, work or saving.
-- column low_unknown_reason VARCHAR: Why low_saving_bytes is NULL; NULL where it is known.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('what')::VARCHAR, 'all') AS what,
    coalesce(getvariable('rank_by')::VARCHAR, 'auto') AS rank_by,
    coalesce(getvariable('top_functions')::BIGINT, 1) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 5) AS top_n
),
timed AS (
  SELECT DISTINCT module_id
  FROM instruction_times
),
found AS (
  SELECT
    functions.place AS function_place,
    functions.name_place, functions.run_name, functions.function_name, functions.platform,
    functions.color, functions.peak_bytes, functions.unknown_reason, functions.module_id,
    savings.what, savings.held_bytes, savings.low_saving_bytes, savings.saving_bytes,
    savings.half_saving_bytes, savings.peak_bytes_without, savings.peak_time_without,
    savings.saving_form, savings.kept_name, savings.low_operation_count,
    savings.operation_count, savings.low_unknown_reason,
    coalesce(
      savings.name, "values".instruction_name
        || CASE "values".shape_index WHEN '{}' THEN '' ELSE "values".shape_index END
        || coalesce(' ' || "values".shape, '')
    ) AS name,
    CASE savings.what WHEN 'source_line' THEN 1 WHEN 'op' THEN 2 WHEN 'value' THEN 3 END
      AS what_place,
    savings.name AS saving_name, savings.value_id,
    times.low_recompute_ns, times.recompute_ns,
    CASE
      WHEN params.rank_by = 'saving' THEN 'saving'
      WHEN timed.module_id IS NOT NULL THEN 'time'
      WHEN params.rank_by = 'cost' THEN 'work'
      ELSE 'saving'
    END AS ranked_by,
    CASE
      WHEN savings.backward_bytes = savings.held_bytes THEN NULL
      WHEN savings.low_saving_bytes IS NOT NULL
        THEN 1e6 * savings.low_saving_bytes / nullif(times.low_recompute_ns, 0)
      ELSE 1e6 * savings.saving_bytes / nullif(times.recompute_ns, 0)
    END AS saving_bytes_per_ms,
    CASE
      WHEN savings.backward_bytes = savings.held_bytes THEN NULL
      WHEN savings.low_saving_bytes IS NOT NULL
        THEN CAST(savings.low_saving_bytes AS DOUBLE) / nullif(savings.low_operation_count, 0)
      ELSE CAST(savings.saving_bytes AS DOUBLE)
        / nullif(coalesce(savings.operation_count, costs.operation_count), 0)
    END AS bytes_per_operation
  FROM answered_functions AS functions
  CROSS JOIN params
  LEFT JOIN timed ON timed.module_id = functions.module_id
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = functions.module_id
    AND savings.color = functions.color
    AND (params.what = 'all' OR savings.what = params.what)
  LEFT JOIN "values"
    ON "values".module_id = savings.module_id
    AND "values".value_id = savings.value_id
  LEFT JOIN recompute_costs AS costs
    ON costs.module_id = savings.module_id
    AND costs.value_id = savings.value_id
  LEFT JOIN recompute_times AS times
    ON times.module_id = savings.module_id
    AND times.color = savings.color
    AND times.what = savings.what
    AND coalesce(times.name, '') = coalesce(savings.name, '')
    AND coalesce(times.value_id, -1) = coalesce(savings.value_id, -1)
  WHERE functions.place <= params.top_functions
    AND (savings.what IS NOT NULL OR functions.unknown_reason IS NOT NULL)
),
keyed AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, what, held_bytes, low_saving_bytes, saving_bytes,
    half_saving_bytes, peak_bytes_without, peak_time_without, saving_form, kept_name,
    low_operation_count, operation_count, low_unknown_reason, name, what_place,
    low_recompute_ns, recompute_ns, saving_bytes_per_ms, ranked_by, saving_name, value_id,
    CASE
      WHEN ranked_by = 'saving'
          OR 100 * coalesce(low_saving_bytes, saving_bytes) <= peak_bytes
        THEN -1
      WHEN ranked_by = 'time' THEN coalesce(saving_bytes_per_ms, -1)
      ELSE coalesce(bytes_per_operation, -1)
    END AS rank_figure
  FROM found
),
ranked AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, what, held_bytes, low_saving_bytes, saving_bytes,
    half_saving_bytes, peak_bytes_without, peak_time_without, saving_form, kept_name,
    low_operation_count, operation_count, low_unknown_reason, name, what_place,
    low_recompute_ns, recompute_ns, saving_bytes_per_ms, ranked_by,
    row_number() OVER (
      PARTITION BY function_place, what
      ORDER BY
        rank_figure DESC,
        coalesce(low_saving_bytes, saving_bytes) DESC, saving_bytes DESC, held_bytes DESC,
        saving_name, value_id
    ) AS place
  FROM keyed
)
SELECT
  ranked.run_name, ranked.function_name, ranked.platform, ranked.color, ranked.peak_bytes,
  ranked.what, ranked.held_bytes, ranked.low_saving_bytes, ranked.saving_bytes,
  ranked.half_saving_bytes, ranked.peak_bytes_without, ranked.peak_time_without AS next_peak_time,
  instructions.instruction_name AS next_peak_instruction,
  ranked.name, ranked.saving_form, ranked.kept_name, ranked.low_operation_count,
  ranked.operation_count, ranked.low_recompute_ns, ranked.recompute_ns,
  ranked.saving_bytes_per_ms, ranked.ranked_by, ranked.low_unknown_reason, ranked.unknown_reason
FROM ranked
CROSS JOIN params
LEFT JOIN instructions
  ON instructions.module_id = ranked.module_id
  AND instructions.program_order = ranked.peak_time_without
WHERE ranked.place <= params.top_n OR ranked.unknown_reason IS NOT NULL
ORDER BY ranked.function_place, ranked.name_place, ranked.what_place, ranked.place;
