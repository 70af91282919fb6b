-- title: Copies, largest first, with the likely reason
-- group: waste
-- engines: duckdb, spark, sail
--
-- A copy instruction makes a second buffer with the same contents. For each run and function (its
-- compilation with the largest need) one row per copied array, those that hold most bytes at
-- the peak first. The reason is the first that applies: memory_space (to another memory space, such
-- as a prefetch), layout (the same elements in another order), loop_carry (query carry-copies says
-- more), argument (of an argument, mostly because it is not donated or is returned unchanged),
-- constant, other.
--
-- wrong when: A copy that fusion has merged into another instruction does not show, and its
-- neighbours may be called copies by name without being one. XLA inserts copies that correctness
-- needs; is_kept_twice says those that cost memory (both buffers are live together) from those
-- that take over as the original dies, or become another array than it in a loop that carries
-- both. Moves between memory spaces are the compiler's own: no donation and no layout takes them
-- away, and without them the bytes would be in the slower memory.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space of the copy.
-- column peak_held_bytes HUGEINT: Bytes that the copy holds at the peak [bytes]; NULL without live
--   ranges.
-- column low_saving_bytes HUGEINT: By how much the highest peak falls at the least without it
--   [bytes]: as saving_bytes, but 0 where sureness is unlikely; NULL as saving_bytes.
-- column saving_bytes HUGEINT: By how much it would fall without it (query savings) [bytes]; NULL
--   for what holds nothing there in a temp allocation.
-- column sureness VARCHAR: How sure that is (advice_sureness); unlikely where it is not kept twice
--   or goes to another memory space; NULL without live ranges, and of what is kept twice without a
--   figure.
-- column size_bytes BIGINT: Assigned size of the copy [bytes].
-- column is_kept_twice BOOLEAN: Whether copy and original are live together for more than the
--   instant of copying, and not as two elements of a loop's carry; NULL without live ranges.
-- column reason VARCHAR: memory_space, layout, loop_carry, argument, constant or other.
-- column shape VARCHAR: Shape of the copy with layout.
-- column instruction_name VARCHAR: The copy.
-- column source_name VARCHAR: Instruction that defines what is copied; NULL if unknown.
-- column source_shape VARCHAR: Shape with layout of what is copied; NULL if unknown.
-- column op_name VARCHAR: Scope path of the copy, else of what is copied; NULL if neither has one.
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" of what the compiler made for that
--   line, "library file:line" where all is library code;
--   else that of what is copied; NULL if neither is known.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
copies AS (
  SELECT
    copy_details.module_id, copy_details.color, copy_details.value_id,
    CASE
      WHEN functions.peak_bytes IS NOT NULL THEN coalesce(held.held_bytes, 0)
    END AS peak_held_bytes,
    copy_details.size_bytes, copy_details.is_kept_twice, copy_details.is_avoidable,
    CASE
      WHEN copy_details.color <> copy_details.source_color THEN 'memory_space'
      WHEN copy_details.shape <> copy_details.source_shape THEN 'layout'
      WHEN copy_details.carry_role IS NOT NULL THEN 'loop_carry'
      WHEN copy_details.source_allocation_kind IN ('parameter', 'donated_parameter')
        AND copy_details.source_opcode = 'parameter' THEN 'argument'
      WHEN copy_details.source_opcode = 'constant' THEN 'constant'
      ELSE 'other'
    END AS reason,
    copy_details.shape, copy_details.instruction_name, copy_details.source_name,
    copy_details.source_shape, copy_details.source_value_id,
    row_number() OVER (
      ORDER BY
        CASE
          WHEN functions.peak_bytes IS NOT NULL THEN coalesce(held.held_bytes, 0)
        END DESC NULLS LAST,
        copy_details.size_bytes DESC, functions.name_place, copy_details.value_id
    ) AS place
  FROM answered_instants AS functions
  JOIN copy_details
    ON copy_details.module_id = functions.module_id
    AND copy_details.color = functions.color
  LEFT JOIN asked_peak_values AS held
    ON held.module_id = copy_details.module_id
    AND held.value_id = copy_details.value_id
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  copies.peak_held_bytes,
  CASE WHEN copies.is_avoidable THEN 1 ELSE 0 END * savings.saving_bytes AS low_saving_bytes,
  savings.saving_bytes, advice_sureness.sureness, copies.size_bytes, copies.is_kept_twice,
  copies.reason, copies.shape, copies.instruction_name, copies.source_name, copies.source_shape,
  coalesce(value_details.op_name, source_details.op_name) AS op_name,
  coalesce(
    value_sources.source_line, source_details.own_source, source_details.library_source
  ) AS source,
  functions.unknown_reason
FROM answered_instants AS functions
CROSS JOIN params
LEFT JOIN copies
  ON copies.module_id = functions.module_id
  AND copies.color = functions.color
  AND copies.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = copies.module_id
  AND value_details.value_id = copies.value_id
LEFT JOIN value_sources
  ON value_sources.module_id = copies.module_id
  AND value_sources.value_id = copies.value_id
LEFT JOIN value_details AS source_details
  ON source_details.module_id = copies.module_id
  AND source_details.value_id = copies.source_value_id
LEFT JOIN peak_savings AS savings
  ON savings.module_id = copies.module_id
  AND savings.color = copies.color
  AND savings.value_id = copies.value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN copies.reason = 'memory_space' AND copies.is_kept_twice IS NOT NULL THEN 'memory_move'
    WHEN copies.is_kept_twice AND savings.saving_bytes IS NOT NULL THEN 'copy'
    WHEN NOT copies.is_kept_twice THEN 'copy_in_turn'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
WHERE copies.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY copies.place NULLS FIRST, functions.name_place;
