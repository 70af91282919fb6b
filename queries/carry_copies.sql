-- title: Copies that keep an element of a loop's carry twice
-- group: waste
-- engines: duckdb, spark, sail
--
-- A while loop (lax.scan, fori_loop, while_loop) updates its carry in place only if the old element
-- is dead when the new one is written. Where it is not, XLA copies, and the element takes two
-- buffers: initial (the loop starts from a buffer that is still needed, such as an argument that is
-- not donated), taken (the body copies the element it was given, and then writes the new one over
-- it), returned (the body computes the new one elsewhere and copies it into place), result (the
-- element is copied after the loop, while it is still needed). For each run and function (its
-- compilation with the largest need) one row per such copy, those with the second buffer at
-- the peak first.
--
-- wrong when: Inside a body every copy of a carry element counts, also one for the short time of
-- one instruction; peak_held_bytes says whether it matters. Which copies are returned is known by
-- the address and the end of the live range, so a copy in another buffer that ends with the body
-- can be taken for one. Counters of a few bytes are copied in nearly every loop. Modules without
-- live ranges have none of these.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param min_bytes BIGINT = 64: Smallest copy to show [bytes].
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space of the copy.
-- column peak_held_bytes HUGEINT: Bytes that the second buffer holds at the peak [bytes].
-- column low_saving_bytes HUGEINT: By how much the highest peak falls at the least without that
--   buffer [bytes]: as saving_bytes, but 0 where both are not live together for more than the
--   instant of copying, or in two memory spaces; NULL as saving_bytes.
-- column saving_bytes HUGEINT: By how much it would fall without that buffer (query savings)
--   [bytes]; NULL for what holds nothing there in a temp allocation.
-- column sureness VARCHAR: How sure that is (advice_sureness); NULL without a figure.
-- column size_bytes BIGINT: Assigned size of the copy [bytes].
-- column carry_role VARCHAR: initial, taken, returned or result.
-- column shape VARCHAR: Shape of the copy with layout.
-- column instruction_name VARCHAR: The copy.
-- column source_name VARCHAR: Instruction that defines what is copied.
-- column while_name VARCHAR: The loop; NULL for taken.
-- column op_name VARCHAR: Scope path of the copy, else of what is copied; NULL if neither has one.
-- column source VARCHAR: Innermost file:line that is not library code, likewise, "library
--   file:line" where all is; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('min_bytes')::BIGINT, 64) AS min_bytes,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
carry_copies AS (
  SELECT
    copy_details.module_id, copy_details.color, copy_details.value_id, copy_details.source_value_id,
    copy_details.size_bytes, copy_details.carry_role, copy_details.shape,
    copy_details.instruction_name, copy_details.source_name,
    coalesce(
      copy_details.into_carry_of,
      CASE WHEN copy_details.carry_role = 'result' THEN copy_details.source_name END
    ) AS while_name,
    coalesce(held.held_bytes, 0) AS peak_held_bytes,
    CASE WHEN copy_details.is_avoidable THEN 1 ELSE 0 END * savings.saving_bytes
      AS low_saving_bytes,
    savings.saving_bytes,
    row_number() OVER (
      ORDER BY
        coalesce(held.held_bytes, 0) DESC, copy_details.size_bytes DESC,
        functions.name_place, copy_details.value_id
    ) AS place
  FROM answered_instants AS functions
  CROSS JOIN params
  JOIN copy_details
    ON copy_details.module_id = functions.module_id
    AND copy_details.color = functions.color
  -- The carry's own buffer is the copy's where it goes into the carry, else the original's.
  LEFT JOIN asked_peak_values AS held
    ON held.module_id = copy_details.module_id
    AND held.value_id = CASE
      WHEN copy_details.carry_role IN ('initial', 'returned') THEN copy_details.source_value_id
      ELSE copy_details.value_id
    END
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = copy_details.module_id
    AND savings.color = copy_details.color
    AND savings.value_id = CASE
      WHEN copy_details.carry_role IN ('initial', 'returned') THEN copy_details.source_value_id
      ELSE copy_details.value_id
    END
  WHERE copy_details.size_bytes >= params.min_bytes
    AND functions.peak_bytes IS NOT NULL
    AND (
      copy_details.carry_role IN ('taken', 'returned')
      OR (copy_details.carry_role IN ('initial', 'result') AND copy_details.is_kept_twice)
    )
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  carry_copies.peak_held_bytes, carry_copies.low_saving_bytes, carry_copies.saving_bytes,
  advice_sureness.sureness,
  carry_copies.size_bytes, carry_copies.carry_role, carry_copies.shape,
  carry_copies.instruction_name, carry_copies.source_name, carry_copies.while_name,
  coalesce(value_details.op_name, source_details.op_name) AS op_name,
  coalesce(
    value_details.own_source, source_details.own_source, value_details.library_source,
    source_details.library_source
  ) AS source,
  functions.unknown_reason
FROM answered_instants AS functions
CROSS JOIN params
LEFT JOIN carry_copies
  ON carry_copies.module_id = functions.module_id
  AND carry_copies.color = functions.color
  AND carry_copies.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = carry_copies.module_id
  AND value_details.value_id = carry_copies.value_id
LEFT JOIN value_details AS source_details
  ON source_details.module_id = carry_copies.module_id
  AND source_details.value_id = carry_copies.source_value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE WHEN carry_copies.saving_bytes IS NOT NULL THEN 'copy' END
  AND advice_sureness.platform = coalesce(functions.platform, '')
WHERE carry_copies.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY carry_copies.place NULLS FIRST, functions.name_place;
