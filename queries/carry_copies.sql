-- title: Copies that keep an element of a loop's carry twice
-- group: waste
-- engines: duckdb, spark
--
-- A while loop (lax.scan, fori_loop, while_loop) updates its carry in place only if the old element
-- is dead when the new one is written. Where it is not, XLA copies, and the element takes two
-- buffers: initial (the loop starts from a buffer that is still needed, such as an argument that is
-- not donated), taken (the body copies the element it was given, and then writes the new one over
-- it), returned (the body computes the new one elsewhere and copies it into place), result (the
-- element is copied after the loop, while it is still needed). For each run and function (its
-- compilation with the largest known peak) one row per such copy, those with the second buffer at
-- the peak first.
--
-- wrong when: Inside a body every copy of a carry element counts, also one for the short time of
-- one instruction; peak_held_bytes tells whether it matters. Which copies are returned is told by
-- the address and the end of the live range, so a copy in another buffer that ends with the body
-- can be taken for one. Counters of a few bytes are copied in nearly every loop. Modules without
-- live ranges have none of these.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param min_bytes BIGINT = 64: Smallest copy to show [bytes].
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space of the copy.
-- column peak_held_bytes BIGINT: Bytes that the second buffer holds at the peak [bytes].
-- column size_bytes BIGINT: Assigned size of the copy [bytes].
-- column carry_role VARCHAR: initial, taken, returned or result.
-- column shape VARCHAR: Shape of the copy with layout.
-- column instruction_name VARCHAR: The copy.
-- column source_name VARCHAR: Instruction that defines what is copied.
-- column while_name VARCHAR: The loop; NULL for taken.
-- column op_name VARCHAR: Scope path of the copy, else of what is copied; NULL if neither has one.
-- column source VARCHAR: Innermost file:line that is not library code, likewise; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('min_bytes')::BIGINT, 64) AS min_bytes,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
carry_copies AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    copy_details.module_id,
    copy_details.color,
    copy_details.value_id,
    copy_details.source_value_id,
    copy_details.size_bytes,
    copy_details.carry_role,
    copy_details.shape,
    copy_details.instruction_name,
    copy_details.source_name,
    coalesce(
      copy_details.into_carry_of,
      CASE WHEN copy_details.carry_role = 'result' THEN copy_details.source_name END
    ) AS while_name,
    -- The carry's own buffer is the copy's where it goes into the carry, else the original's.
    CASE
      WHEN copy_details.carry_role IN ('initial', 'returned') THEN copy_details.source_value_id
      ELSE copy_details.value_id
    END AS second_value_id
  FROM function_modules
  CROSS JOIN params
  JOIN copy_details
    ON copy_details.module_id = function_modules.module_id
    AND copy_details.color = function_modules.color
  WHERE copy_details.size_bytes >= params.min_bytes
    AND function_modules.peak_bytes IS NOT NULL
    AND (
      copy_details.carry_role IN ('taken', 'returned')
      OR (copy_details.carry_role IN ('initial', 'result') AND copy_details.is_kept_twice)
    )
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
ranked_copies AS (
  SELECT
    carry_copies.run_name,
    carry_copies.function_name,
    carry_copies.module_id,
    carry_copies.color,
    carry_copies.value_id,
    carry_copies.source_value_id,
    carry_copies.size_bytes,
    carry_copies.carry_role,
    carry_copies.shape,
    carry_copies.instruction_name,
    carry_copies.source_name,
    carry_copies.while_name,
    coalesce(peak_values.held_bytes, 0) AS peak_held_bytes,
    row_number() OVER (
      ORDER BY
        coalesce(peak_values.held_bytes, 0) DESC,
        carry_copies.size_bytes DESC,
        carry_copies.run_name,
        carry_copies.function_name,
        carry_copies.platform NULLS LAST,
        carry_copies.color,
        carry_copies.value_id
    ) AS place
  FROM carry_copies
  LEFT JOIN peak_values
    ON peak_values.module_id = carry_copies.module_id
    AND peak_values.value_id = carry_copies.second_value_id
),
answers AS (
  SELECT
    ranked_copies.run_name,
    ranked_copies.function_name,
    ranked_copies.color,
    ranked_copies.peak_held_bytes,
    ranked_copies.size_bytes,
    ranked_copies.carry_role,
    ranked_copies.shape,
    ranked_copies.instruction_name,
    ranked_copies.source_name,
    ranked_copies.while_name,
    coalesce(value_details.op_name, source_details.op_name) AS op_name,
    coalesce(
      value_details.own_source_file || ':' || value_details.own_source_line,
      source_details.own_source_file || ':' || source_details.own_source_line
    ) AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    ranked_copies.place
  FROM ranked_copies
  CROSS JOIN params
  LEFT JOIN value_details
    ON value_details.module_id = ranked_copies.module_id
    AND value_details.value_id = ranked_copies.value_id
  LEFT JOIN value_details AS source_details
    ON source_details.module_id = ranked_copies.module_id
    AND source_details.value_id = ranked_copies.source_value_id
  WHERE ranked_copies.place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS peak_held_bytes,
    NULL AS size_bytes,
    NULL AS carry_role,
    NULL AS shape,
    NULL AS instruction_name,
    NULL AS source_name,
    NULL AS while_name,
    NULL AS op_name,
    NULL AS source,
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
  answers.peak_held_bytes,
  answers.size_bytes,
  answers.carry_role,
  answers.shape,
  answers.instruction_name,
  answers.source_name,
  answers.while_name,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
