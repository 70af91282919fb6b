-- title: Values at the peak that could wait in the memory of the host
-- group: waste
-- engines: duckdb, spark, sail
--
-- A temp value that is live across the peak without being used there could be copied to the host
-- and fetched again (jax.checkpoint with save_and_offload_only_these_names, or jax.device_put to
-- memory space pinned_host). Unlike what is computed again (query remat-candidates) it may be dear
-- to compute; it costs the way out and back. Listed are values of the device's own memory (memory
-- space 0) that are held at the peak, begin before and end behind it, live long and are not used at
-- it, and stacks that a loop fills in the forward pass of a gradient (query loop-residuals): of
-- these one slice at a time stays. A policy can offload inputs of the layer too, which a scan saves
-- whatever is left out. For each run and function (its compilation with the largest need) the
-- largest low end first.
--
-- wrong when: Copies take time, and a slice that comes back late stalls the step: transfer_bytes by
-- the speed of the link to the host is the least of it, beside the computation that it can hide
-- behind. Past the peak another instant, almost as high, may be the next limit; saving_bytes says.
-- Several rows do not add up. A value that is updated in place, or whose bytes another value
-- continues, cannot leave.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param min_bytes BIGINT = 1: Smallest value to show, less what stays of it [bytes].
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest life to show, as share of the schedule (0 to 1).
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space, 0 but in a row with unknown_reason.
-- column peak_bytes HUGEINT: Peak of the memory space [bytes].
-- column held_bytes HUGEINT: Bytes that it holds at the peak [bytes].
-- column kept_bytes HUGEINT: What stays on the device: one slice of a stack, else nothing [bytes].
-- column low_saving_bytes HUGEINT: By how much the highest peak falls, at the least, if kept_bytes
--   stay [bytes]; 0 on the CPU, whose memory is the host's; NULL for what holds nothing at the
--   highest peak.
-- column saving_bytes HUGEINT: By how much at the most, if nothing stays (query savings) [bytes];
--   0 on the CPU; NULL likewise.
-- column sureness VARCHAR: How sure that is (advice_sureness).
-- column transfer_bytes HUGEINT: What goes to the host and back [bytes].
-- column operation_count BIGINT: Operations that it takes to compute it again, of a stack for all
--   slices (recompute_costs); NULL if not known, and for less than a hundredth of the peak.
-- column lifetime_ratio DOUBLE: Its life as share of the schedule (0 to 1); NULL for a stack.
-- column idle_time BIGINT: Time around the peak in which nothing uses it [program order]; NULL for
--   a stack.
-- column is_layer_input BOOLEAN: Whether it is the stack of an input of the layer.
-- column shape VARCHAR: Shape with layout.
-- column opcode VARCHAR: Opcode of the defining instruction; NULL if unknown.
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
idle AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.name_place,
    idle_values.held_bytes, idle_values.lifetime_ratio, idle_values.idle_time,
    idle_values.is_stack, idle_values.is_layer_input, idle_values.shape, idle_values.opcode,
    idle_values.instruction_name,
    idle_values.offload_kept_bytes AS kept_bytes, idle_values.offload_low_saving_bytes,
    idle_values.offload_saving_bytes
  FROM answered_idle_values AS idle_values
),
candidates AS (
  SELECT
    idle.module_id, idle.color, idle.value_id, idle.held_bytes,
    idle.kept_bytes, idle.offload_low_saving_bytes, idle.offload_saving_bytes,
    2 * idle.held_bytes AS transfer_bytes,
    idle.lifetime_ratio, idle.idle_time, idle.is_layer_input, idle.shape, idle.opcode,
    idle.instruction_name,
    row_number() OVER (
      ORDER BY
        idle.offload_low_saving_bytes DESC NULLS LAST, idle.held_bytes DESC, idle.name_place,
        idle.value_id
    ) AS place
  FROM idle
  CROSS JOIN params
  WHERE idle.color = 0
    AND idle.held_bytes - idle.kept_bytes >= params.min_bytes
    AND (idle.is_stack OR idle.lifetime_ratio >= params.min_lifetime_ratio)
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN candidates.place IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  candidates.held_bytes, candidates.kept_bytes,
  candidates.offload_low_saving_bytes AS low_saving_bytes,
  candidates.offload_saving_bytes AS saving_bytes,
  advice_sureness.sureness,
  candidates.transfer_bytes, costs.operation_count, candidates.lifetime_ratio,
  candidates.idle_time, candidates.is_layer_input, candidates.shape, candidates.opcode,
  candidates.instruction_name,
  value_sources.op_name, value_sources.source_line AS source,
  functions.unknown_reason
FROM answered_functions_with_uses AS functions
CROSS JOIN params
LEFT JOIN candidates
  ON candidates.module_id = functions.module_id
  AND candidates.color = functions.color
  AND candidates.place <= params.top_n
LEFT JOIN value_sources
  ON value_sources.module_id = candidates.module_id
  AND value_sources.value_id = candidates.value_id
LEFT JOIN recompute_costs AS costs
  ON costs.module_id = candidates.module_id
  AND costs.value_id = candidates.value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE WHEN candidates.place IS NOT NULL THEN 'offload' END
  AND advice_sureness.platform = coalesce(functions.platform, '')
WHERE candidates.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY candidates.place NULLS FIRST, functions.name_place;
