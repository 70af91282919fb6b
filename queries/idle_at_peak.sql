-- title: Values at the peak that nothing uses then: compute them again, or offload them
-- group: saving
-- engines: duckdb, spark, sail
--
-- A temp value that is live across the peak without being used there could be thrown away and
-- computed again after it (remedy recompute: jax.checkpoint, a policy, or moving the computation),
-- or copied to the host and fetched again (remedy offload: jax.checkpoint with
-- save_and_offload_only_these_names, or jax.device_put to memory space pinned_host). Listed are
-- values that are held at the peak, begin before and end after it, live long and are not used at
-- it, and stacks that a loop fills in the forward pass of a gradient (query loop-residuals). For
-- each run and function (its compilation with the largest need) the largest low end first.
--
-- recompute: those that come from an instruction that costs little: elementwise operations,
-- broadcast, convert, iota, reshape, transpose, slice, pad, concatenate, copy, or a fusion of kind
-- kLoop, which is made of them. What is saved is the bytes held minus the operands that would have
-- to stay for it: those in temp allocations that are not held at the peak. A stack is judged by the
-- operation that makes its slices, and costs one slice at a time; a policy of jax.checkpoint can
-- leave it out. Inputs of the layer, which a scan saves whatever the policy, are none.
-- jax.checkpoint computes values of the forward pass of a gradient again: none are what the
-- backward pass makes, also early, what is made outside of a gradient, and what is computed again
-- already.
--
-- offload: those of the device's own memory (memory space 0), which may be costly to compute; the
-- price is the way out and back. Of a stack one slice at a time stays. A policy can offload inputs
-- of the layer too, which a scan saves whatever is left out.
--
-- wrong when: Several rows may count on the same operand staying, or one be the operand of another,
-- so savings do not add up. Past the peak another instant, almost as high, may be the next limit;
-- saving_bytes says. A value that is updated in place, or whose bytes another value continues,
-- cannot be dropped or leave. A kLoop fusion can hold a reduction or a gather, and what one calls
-- cheap may read much. Operands are counted one step back; they may need others. Copies to the host
-- take time, and a slice that comes back late stalls the step: transfer_bytes by the speed of the
-- link to the host is the least of it, next to the computation that it can overlap with.
--
-- param run, function, platform, color, module, peak, step
-- param remedy VARCHAR = 'recompute' | 'offload': What to do with them.
-- param min_bytes BIGINT = 1: Smallest value to show, less what stays of it [bytes].
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest life to show, as share of the schedule (0 to 1).
-- param top_n = 20
--
-- column run_name, function_name, platform, color, peak_bytes
-- column saved_bytes HUGEINT: held_bytes less kept_bytes [bytes].
-- column held_bytes HUGEINT: Bytes that it holds at the peak [bytes].
-- column kept_bytes HUGEINT: What stays: of a stack one slice; else the operands to compute it
--   again, and nothing for offload [bytes].
-- column low_saving_bytes HUGEINT: By how much the highest peak falls at the least [bytes]; NULL
--   for what holds nothing there. recompute: of a stack in the form of saving_form (query savings),
--   below 0 where that costs more than it frees; 0 for what no loop stacks, of which nothing may
--   come. offload: if kept_bytes stay; 0 on the CPU, whose memory is the host's.
-- column saving_bytes HUGEINT: By how much at the most (query savings) [bytes]; NULL likewise.
--   recompute: for what no loop stacks less kept_bytes, and 0 on the CPU for that, since that
--   compiler merges what is computed twice. offload: if nothing stays; 0 on the CPU.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   less in the policy that is there); NULL for what no loop stacks, and for offload.
-- column kept_name VARCHAR: Lines whose values are kept instead at the low end; NULL if there are
--   none, and for offload.
-- column sureness VARCHAR: How sure that is (advice_sureness); what a loop stacks has its own.
-- column transfer_bytes HUGEINT: What goes to the host and back [bytes]; NULL for recompute.
-- column low_operation_count BIGINT: Operations that it takes to compute all slices of a stack
--   again at the low end; NULL if not known, for what no loop stacks, and for offload.
-- column operation_count BIGINT: Operations that it takes to compute it again, of a stack for all
--   slices: for recompute at the high end, else and of what no loop stacks as recompute_costs has
--   it; NULL if not known.
-- column lifetime_ratio DOUBLE: Its life as share of the schedule (0 to 1); NULL for a stack.
-- column idle_time BIGINT: Time around the peak in which nothing uses it [program order]; NULL for
--   a stack.
-- column is_layer_input BOOLEAN: Whether it is the stack of an input of the layer.
-- column shape, opcode, instruction_name
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" of what the compiler made for that
--   line, "library file:line" where all is library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function or the uses of its values are
--   unknown, in a row of its own that has nothing else, comes first and does not count in top_n;
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
WHERE candidates.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY candidates.place NULLS FIRST, functions.name_place;
