-- title: Copies, largest first, with the likely reason
-- group: saving
-- engines: duckdb, spark, sail
--
-- A copy instruction makes a second buffer with the same contents. One row per copied array for
-- each run and function (its compilation with the largest need), most bytes held at the peak first.
-- The reason is the first that applies: memory_space (to another memory space, such as a prefetch),
-- layout (the same elements in another order), loop_carry (details with only = 'carry'), argument
-- (of an argument, mostly because it is not donated or is returned unchanged), constant, other.
--
-- With only = 'carry', shows the copies that keep an element of a loop's carry twice. A while loop
-- (lax.scan, fori_loop, while_loop) updates its carry in place only if the old element is dead when
-- the new one is written. Otherwise XLA copies, and the element takes two buffers: initial (the
-- loop starts from a buffer that is still needed, such as an argument that is not donated), taken
-- (the body copies its input element and then overwrites it), returned (the body computes the new
-- one elsewhere and copies it into place), result (the element is copied after the loop while it is
-- still needed). Figures at the peak are then those of the second buffer: for initial and returned,
-- that of the source. Modules without live ranges have no such rows.
--
-- wrong when: A copy that was fused into another instruction does not show, and an instruction can
-- be named copy without being one. XLA inserts copies that correctness requires; is_kept_twice
-- separates those that cost memory (both buffers are live together) from those that replace a dying
-- original, or become a different array in a loop that carries both. The compiler decides on moves
-- between memory spaces: donation or layouts do not avoid them, and without them the bytes would be
-- in the slower memory. Inside a body every copy of a carry element counts, even one for a single
-- instruction; peak_held_bytes shows whether it matters. Returned copies are recognized by address
-- and end of the live range, so a copy in another buffer that ends with the body may be
-- misclassified. Counters of a few bytes are copied in nearly every loop.
--
-- param run, function, platform, color, module, peak, step
-- param only VARCHAR = 'all' | 'carry': Whether to show all copies, or those of loops' carries.
-- param min_bytes BIGINT = 0: Smallest copy to show [bytes].
-- param top_n
--
-- column run_name, function_name, platform
-- column color BIGINT: Memory space of the copy.
-- column peak_held_bytes HUGEINT: Bytes that the copy holds at the peak [bytes]; NULL without live
--   ranges.
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak falls without it
--   [bytes]: saving_bytes, but 0 where sureness is unlikely; NULL where saving_bytes is.
-- column saving_bytes HUGEINT: How far it would fall without it (query savings) [bytes]; NULL if it
--   holds nothing there in a temp allocation.
-- column sureness VARCHAR: How sure that is (advice_sureness); unlikely where it is not kept twice
--   or goes to another memory space; NULL without live ranges, and if it is kept twice without a
--   figure.
-- column size_bytes BIGINT: Assigned size of the copy [bytes].
-- column is_kept_twice BOOLEAN: Whether copy and original are live together beyond the instant of
--   copying, and not as two elements of a loop's carry; NULL without live ranges.
-- column reason VARCHAR: memory_space, layout, loop_carry, argument, constant or other.
-- column shape VARCHAR: Shape of the copy with layout.
-- column instruction_name VARCHAR: The copy.
-- column source_name VARCHAR: Instruction that defines the source of the copy; NULL if unknown.
-- column source_shape VARCHAR: Shape with layout of the source; NULL if unknown.
-- column op_name VARCHAR: Scope path of the copy, else of its source; NULL if neither has one.
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" for what the compiler made for that
--   line, "library file:line" if everything is library code; else that of the source; NULL if
--   neither is known.
-- column carry_role VARCHAR: initial, taken, returned or result; NULL for others.
-- column while_name VARCHAR: The loop whose carry it is; NULL for taken and for others.
-- column unknown_reason
--
-- alias carry-copies = copies -p only carry -p min_bytes 64: run_name, function_name, platform,
--   color, peak_held_bytes, low_saving_bytes, saving_bytes, sureness, size_bytes, carry_role,
--   shape, instruction_name, source_name, while_name, op_name, source, unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('only')::VARCHAR, 'all') AS only,
    coalesce(getvariable('min_bytes')::BIGINT, 0) AS min_bytes,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, peak_bytes, module_id, color, run_name, function_name, platform, unknown_reason
  FROM answered_instants
),
asked_copies AS (
  SELECT
    functions.name_place, functions.peak_bytes, copy_details.module_id, copy_details.color,
    copy_details.value_id, copy_details.size_bytes, copy_details.is_kept_twice,
    copy_details.is_avoidable, copy_details.carry_role, copy_details.shape,
    copy_details.instruction_name, copy_details.source_name, copy_details.source_shape,
    copy_details.source_value_id,
    CASE
      WHEN copy_details.color <> copy_details.source_color THEN 'memory_space'
      WHEN copy_details.shape <> copy_details.source_shape THEN 'layout'
      WHEN copy_details.carry_role IS NOT NULL THEN 'loop_carry'
      WHEN copy_details.source_allocation_kind IN ('parameter', 'donated_parameter')
        AND copy_details.source_opcode = 'parameter' THEN 'argument'
      WHEN copy_details.source_opcode = 'constant' THEN 'constant'
      ELSE 'other'
    END AS reason,
    coalesce(
      copy_details.into_carry_of,
      CASE WHEN copy_details.carry_role = 'result' THEN copy_details.source_name END
    ) AS while_name,
    -- The buffer of the carry is that of the copy if it goes into the carry, else the original's.
    CASE
      WHEN params.only = 'carry' AND copy_details.carry_role IN ('initial', 'returned')
        THEN copy_details.source_value_id
      ELSE copy_details.value_id
    END AS second_value_id
  FROM functions
  CROSS JOIN params
  JOIN copy_details
    ON copy_details.module_id = functions.module_id
    AND copy_details.color = functions.color
  WHERE copy_details.size_bytes >= params.min_bytes
    AND (
      params.only = 'all'
      OR (
        functions.peak_bytes IS NOT NULL
        AND (
          copy_details.carry_role IN ('taken', 'returned')
          OR (copy_details.carry_role IN ('initial', 'result') AND copy_details.is_kept_twice)
        )
      )
    )
),
copies AS (
  SELECT
    asked.module_id, asked.color, asked.value_id, asked.size_bytes, asked.is_kept_twice,
    asked.is_avoidable, asked.carry_role, asked.shape, asked.instruction_name, asked.source_name,
    asked.source_shape, asked.source_value_id, asked.reason, asked.while_name,
    asked.second_value_id,
    CASE WHEN asked.peak_bytes IS NOT NULL THEN coalesce(held.held_bytes, 0) END
      AS peak_held_bytes,
    row_number() OVER (
      ORDER BY
        CASE WHEN asked.peak_bytes IS NOT NULL THEN coalesce(held.held_bytes, 0) END
          DESC NULLS LAST,
        asked.size_bytes DESC, asked.name_place, asked.value_id
    ) AS place
  FROM asked_copies AS asked
  LEFT JOIN asked_peak_values AS held
    ON held.module_id = asked.module_id
    AND held.value_id = asked.second_value_id
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  copies.peak_held_bytes,
  CASE WHEN copies.is_avoidable THEN 1 ELSE 0 END * savings.saving_bytes AS low_saving_bytes,
  savings.saving_bytes, advice_sureness.sureness, copies.size_bytes, copies.is_kept_twice,
  copies.reason, copies.shape, copies.instruction_name, copies.source_name, copies.source_shape,
  coalesce(value_details.op_name, source_details.op_name) AS op_name,
  CASE params.only
    WHEN 'all' THEN coalesce(
      value_sources.source_line, source_details.own_source, source_details.library_source
    )
    ELSE coalesce(
      value_details.own_source, source_details.own_source, value_details.library_source,
      source_details.library_source
    )
  END AS source,
  copies.carry_role, copies.while_name, functions.unknown_reason
FROM functions
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
  AND savings.value_id = copies.second_value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN params.only = 'carry' THEN CASE WHEN savings.saving_bytes IS NOT NULL THEN 'copy' END
    WHEN copies.reason = 'memory_space' AND copies.is_kept_twice IS NOT NULL THEN 'memory_move'
    WHEN copies.is_kept_twice AND savings.saving_bytes IS NOT NULL THEN 'copy'
    WHEN NOT copies.is_kept_twice THEN 'copy_in_turn'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (
    coalesce(CASE WHEN copies.is_avoidable THEN savings.saving_bytes END, 0) <= 0
  )
WHERE copies.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY copies.place NULLS FIRST, functions.name_place;
