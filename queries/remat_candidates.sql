-- title: Values at the peak that are cheap to compute again
-- group: waste
-- engines: duckdb, spark, sail
--
-- A temp value that is live across the peak without being used there could be thrown away and
-- computed again after it (jax.checkpoint, a policy, or moving the computation). Listed are values
-- that are held at the peak, begin before and end after it, live long, are not used at it, and come
-- from an instruction that costs little: elementwise operations, broadcast, convert, iota, reshape,
-- transpose, slice, pad, concatenate, copy, or a fusion of kind kLoop, which is made of them. What
-- is saved is the bytes held minus the operands that would have to stay for it: those in temp
-- allocations that are not held at the peak. For each run and function (its compilation with the
-- largest need) the largest low end first.
--
-- A stack that a loop fills for the backward pass (query loop-residuals) is judged by the operation
-- that makes its slices, and costs one slice at a time; a policy of jax.checkpoint can leave it
-- out. Inputs of the layer, which a scan saves whatever the policy, are none. jax.checkpoint
-- computes values of the forward pass of a gradient again: none are what the backward pass makes,
-- also early, what is made outside of a gradient, and what is computed again already.
--
-- wrong when: A kLoop fusion can hold a reduction or a gather, and what one calls cheap may read
-- much. Operands are counted one step back; they may need others. Several rows may count on the
-- same operand staying, or one be the operand of another, so savings do not simply add up. Past the
-- peak another instant, almost as high, may be the next limit. A value that is updated in place, or
-- whose bytes another value continues, cannot be dropped.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param min_bytes BIGINT = 1: Smallest saving to show [bytes].
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest life to show, as share of the schedule (0 to 1).
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the memory space [bytes].
-- column saved_bytes HUGEINT: What dropping the value would save at the peak [bytes].
-- column held_bytes HUGEINT: Bytes that it holds at the peak [bytes].
-- column kept_bytes HUGEINT: Operands that would have to stay for it, of a stack one slice [bytes].
-- column saving_bytes HUGEINT: By how much the highest peak falls at the most (query savings)
--   [bytes], for what no loop stacks less kept_bytes; 0 on the CPU for that, since that compiler
--   merges what is computed twice; NULL for a stack that holds nothing at the highest peak.
-- column low_saving_bytes HUGEINT: The least of it, of a stack in the form of saving_form (query
--   savings) [bytes], below 0 where that costs more than it frees; 0 for what no loop stacks, of
--   which nothing may come; NULL for what holds nothing at the highest peak.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   less in the policy that is there); NULL for what no loop stacks.
-- column kept_name VARCHAR: Lines whose values are kept instead at the low end; NULL if there are
--   none.
-- column sureness VARCHAR: How sure that is (advice_sureness); what a loop stacks has its own.
-- column low_operation_count BIGINT: Operations that it takes to compute all slices of a stack
--   again at the low end; NULL if not known, and for what no loop stacks.
-- column operation_count BIGINT: The same at the high end, of what no loop stacks as
--   recompute_costs has it; NULL if not known.
-- column lifetime_ratio DOUBLE: Its life as share of the schedule (0 to 1); NULL for a stack.
-- column idle_time BIGINT: Time around the peak in which nothing uses it [program order]; NULL for
--   a stack.
-- column shape VARCHAR: Shape with layout.
-- column opcode VARCHAR: Opcode of the defining instruction.
-- column instruction_name VARCHAR: Defining instruction.
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" of what the compiler made for that
--   line, "library file:line" where all is library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function or the uses of its values are
--   unknown, in a row of its own that has nothing else, comes first and does not count in top_n;
--   NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('min_bytes')::BIGINT, 1) AS min_bytes,
    coalesce(getvariable('min_lifetime_ratio')::DOUBLE, 0.1) AS min_lifetime_ratio,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
candidates AS (
  SELECT
    idle.module_id, idle.color,
    idle.held_bytes - idle.kept_bytes AS saved_bytes,
    idle.held_bytes, idle.kept_bytes, idle.lifetime_ratio, idle.idle_time, idle.shape,
    idle.opcode, idle.instruction_name, idle.value_id, idle.is_stack,
    idle.low_saving_bytes, idle.saving_bytes,
    savings.saving_form, savings.kept_name, savings.low_operation_count, savings.operation_count,
    value_sources.op_name, value_sources.source_line AS source,
    row_number() OVER (
      ORDER BY
        idle.low_saving_bytes DESC NULLS LAST, idle.held_bytes - idle.kept_bytes DESC,
        idle.name_place, idle.value_id
    ) AS place
  FROM answered_idle_values AS idle
  CROSS JOIN params
  JOIN value_sources
    ON value_sources.module_id = idle.module_id
    AND value_sources.value_id = idle.value_id
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = idle.module_id
    AND savings.color = idle.color
    AND savings.value_id = idle.value_id
  WHERE idle.is_cheap
    AND NOT idle.is_layer_input
    AND coalesce(idle.is_forward, TRUE)
    AND idle.held_bytes - idle.kept_bytes >= params.min_bytes
    AND (idle.is_stack OR idle.lifetime_ratio >= params.min_lifetime_ratio)
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN candidates.place IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  candidates.saved_bytes, candidates.held_bytes, candidates.kept_bytes,
  candidates.saving_bytes, candidates.low_saving_bytes, candidates.saving_form,
  candidates.kept_name, advice_sureness.sureness,
  candidates.low_operation_count,
  CASE
    WHEN candidates.saving_form IS NULL THEN costs.operation_count
    ELSE candidates.operation_count
  END AS operation_count,
  candidates.lifetime_ratio, candidates.idle_time, candidates.shape,
  candidates.opcode, candidates.instruction_name,
  candidates.op_name, candidates.source, functions.unknown_reason
FROM answered_functions_with_uses AS functions
CROSS JOIN params
LEFT JOIN candidates
  ON candidates.module_id = functions.module_id
  AND candidates.color = functions.color
  AND candidates.place <= params.top_n
LEFT JOIN recompute_costs AS costs
  ON costs.module_id = candidates.module_id
  AND costs.value_id = candidates.value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN candidates.is_stack THEN 'residual'
    WHEN candidates.place IS NOT NULL THEN 'recompute'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
WHERE candidates.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY candidates.place NULLS FIRST, functions.name_place;
