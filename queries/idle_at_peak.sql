-- title: Values unused at the peak: recompute or offload them
-- group: saving
-- engines: duckdb, spark, sail
--
-- A temp value that is live but unused at the peak could be dropped and recomputed after it (remedy
-- recompute: jax.checkpoint, a policy, or moving the computation), or copied to the host and back
-- (remedy offload: jax.checkpoint with save_and_offload_only_these_names, or jax.device_put to
-- memory space pinned_host). Lists values that are held at the peak, begin before and end after it,
-- live long and are not used at it, and stacks that a loop fills in the forward pass of a gradient
-- (query loop-residuals). Largest lower bound first, for each run and function (its compilation
-- with the largest need).
--
-- recompute: values from a cheap instruction: elementwise operations, broadcast, convert, iota,
-- reshape, transpose, slice, pad, concatenate, copy, or a fusion of kind kLoop, which consists of
-- these. The saving is the bytes held minus the operands that must stay: those in temp allocations
-- that are not held at the peak. A stack is judged by the operation that makes its slices, and
-- costs one slice at a time; a policy of jax.checkpoint can drop it. Excluded are inputs of the
-- layer, which a scan saves under any policy, and everything that jax.checkpoint does not
-- recompute: values of the backward pass, values from outside of a gradient, and values that are
-- already recomputed.
--
-- offload: values in the device's own memory (memory space 0), which may be costly to compute; the
-- price is the transfer out and back. One slice of a stack stays at a time. A policy can also
-- offload inputs of the layer.
--
-- wrong when: Several rows may rely on the same operand staying, or one may be the operand of
-- another, so savings do not add up. Another instant, almost as high, may be the next limit;
-- saving_bytes accounts for it. A value that is updated in place, or whose bytes another value
-- continues, cannot be dropped or offloaded. A kLoop fusion can contain a reduction or a gather,
-- and a cheap operation may read much. Operands are counted one step back; they may need others.
-- Copies to the host take time, at least transfer_bytes divided by the bandwidth of the link unless
-- they overlap with computation, and a slice that comes back late stalls the step.
--
-- param run, function, platform, color, module, peak, step
-- param remedy VARCHAR = 'recompute' | 'offload': What to do with the values.
-- param min_bytes BIGINT = 1: Smallest value to show, minus kept_bytes [bytes].
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest lifetime to show, as a share of the schedule (0
--   to 1).
-- param top_n = 20
--
-- column run_name, function_name, platform, color, peak_bytes
-- column saved_bytes HUGEINT: held_bytes minus kept_bytes [bytes].
-- column held_bytes HUGEINT: Bytes that it holds at the peak [bytes].
-- column kept_bytes HUGEINT: What stays [bytes]: one slice of a stack; else the operands to
--   recompute it, and 0 for offload.
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak falls [bytes]; NULL if
--   it holds nothing there. recompute: for a stack with saving_form (query savings), negative where
--   that costs more than it frees; 0 for other values, which may save nothing. offload: if
--   kept_bytes stay; 0 on the CPU, whose memory is host memory.
-- column saving_bytes HUGEINT: Upper bound (query savings) [bytes]; NULL where low_saving_bytes is.
--   recompute: for other values than stacks minus kept_bytes, and 0 on the CPU, whose compiler
--   merges what is computed twice. offload: if nothing stays; 0 on the CPU.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   fewer in the existing policy); NULL for other values than stacks, and for offload.
-- column kept_name VARCHAR: Lines whose values are kept instead, at the lower bound; NULL if there
--   are none, and for offload.
-- column sureness VARCHAR: How sure that is (advice_sureness); separate for what a loop stacks.
-- column transfer_bytes HUGEINT: Bytes moved to the host and back [bytes]; NULL for recompute.
-- column low_operation_count BIGINT: Operations that recompute all slices of a stack, at the lower
--   bound; NULL if unknown, for other values than stacks, and for offload.
-- column operation_count BIGINT: Operations that recompute it, for a stack all its slices: at the
--   upper bound for recompute of a stack, else as in recompute_costs; NULL if unknown.
-- column lifetime_ratio DOUBLE: Its lifetime as a share of the schedule (0 to 1); NULL for a stack.
-- column idle_time BIGINT: Length of the span around the peak without a use [program order]; NULL
--   for a stack.
-- column is_layer_input BOOLEAN: Whether it is a stack of an input of the layer.
-- column shape, opcode, instruction_name
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" for what the compiler made for that
--   line, "library file:line" if everything is library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function or the uses of its values are
--   unknown, in a separate row that has nothing else, comes first and does not count toward top_n;
--   NULL in all other rows.
--
-- alias remat-candidates = idle-at-peak -p remedy recompute: run_name, function_name, platform,
--   color, peak_bytes, saved_bytes, held_bytes, kept_bytes, saving_bytes, low_saving_bytes,
--   saving_form, kept_name, sureness, low_operation_count, operation_count, lifetime_ratio,
--   idle_time, shape, opcode, instruction_name, op_name, source, unknown_reason
-- alias offload-candidates = idle-at-peak -p remedy offload: run_name, function_name, platform,
--   color, peak_bytes, held_bytes, kept_bytes, low_saving_bytes, saving_bytes, sureness,
--   transfer_bytes, operation_count, lifetime_ratio, idle_time, is_layer_input, shape, opcode,
--   instruction_name, op_name, source, unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('remedy')::VARCHAR, 'recompute') AS remedy,
    coalesce(getvariable('min_bytes')::BIGINT, 1) AS min_bytes,
    coalesce(getvariable('min_lifetime_ratio')::DOUBLE, 0.1) AS min_lifetime_ratio,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
idle_values AS (
  SELECT
    idle.module_id, idle.color, idle.value_id, idle.name_place, idle.held_bytes,
    idle.lifetime_ratio, idle.idle_time, idle.is_stack, idle.is_layer_input, idle.shape,
    idle.opcode, idle.instruction_name, params.remedy,
    CASE params.remedy WHEN 'offload' THEN idle.offload_kept_bytes ELSE idle.kept_bytes END
      AS kept_bytes,
    CASE params.remedy WHEN 'offload' THEN idle.offload_low_saving_bytes ELSE idle.low_saving_bytes
    END AS low_saving_bytes,
    CASE params.remedy WHEN 'offload' THEN idle.offload_saving_bytes ELSE idle.saving_bytes END
      AS saving_bytes
  FROM answered_idle_values AS idle
  CROSS JOIN params
  WHERE CASE params.remedy
      WHEN 'offload' THEN idle.color = 0
      ELSE idle.is_cheap AND NOT idle.is_layer_input AND coalesce(idle.is_forward, TRUE)
    END
    AND (idle.is_stack OR idle.lifetime_ratio >= params.min_lifetime_ratio)
),
candidates AS (
  SELECT
    idle.module_id, idle.color, idle.value_id, idle.held_bytes, idle.kept_bytes,
    idle.held_bytes - idle.kept_bytes AS saved_bytes,
    idle.low_saving_bytes, idle.saving_bytes, idle.lifetime_ratio, idle.idle_time,
    idle.is_layer_input, idle.shape, idle.opcode, idle.instruction_name,
    CASE idle.remedy WHEN 'offload' THEN 2 * idle.held_bytes END AS transfer_bytes,
    CASE
      WHEN idle.remedy = 'offload' THEN 'offload'
      WHEN idle.is_stack THEN 'residual'
      ELSE 'recompute'
    END AS kind,
    row_number() OVER (
      ORDER BY
        idle.low_saving_bytes DESC NULLS LAST,
        idle.held_bytes - CASE idle.remedy WHEN 'offload' THEN 0 ELSE idle.kept_bytes END DESC,
        idle.name_place, idle.value_id
    ) AS place
  FROM idle_values AS idle
  CROSS JOIN params
  WHERE idle.held_bytes - idle.kept_bytes >= params.min_bytes
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN candidates.place IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  candidates.saved_bytes, candidates.held_bytes, candidates.kept_bytes,
  candidates.low_saving_bytes, candidates.saving_bytes, savings.saving_form, savings.kept_name,
  advice_sureness.sureness, candidates.transfer_bytes, savings.low_operation_count,
  CASE WHEN savings.saving_form IS NULL THEN costs.operation_count ELSE savings.operation_count END
    AS operation_count,
  candidates.lifetime_ratio, candidates.idle_time, candidates.is_layer_input, candidates.shape,
  candidates.opcode, candidates.instruction_name,
  value_sources.op_name, value_sources.source_line AS source, functions.unknown_reason
FROM answered_functions_with_uses AS functions
CROSS JOIN params
LEFT JOIN candidates
  ON candidates.module_id = functions.module_id
  AND candidates.color = functions.color
  AND candidates.place <= params.top_n
LEFT JOIN value_sources
  ON value_sources.module_id = candidates.module_id
  AND value_sources.value_id = candidates.value_id
LEFT JOIN peak_savings AS savings
  ON savings.module_id = candidates.module_id
  AND savings.color = candidates.color
  AND savings.value_id = candidates.value_id
  AND candidates.kind <> 'offload'
LEFT JOIN recompute_costs AS costs
  ON costs.module_id = candidates.module_id
  AND costs.value_id = candidates.value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = candidates.kind
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(candidates.low_saving_bytes, 1) <= 0)
WHERE candidates.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY candidates.place NULLS FIRST, functions.name_place;
