-- title: Copies, largest first, with the likely reason
-- group: waste
-- engines: duckdb, spark
--
-- A copy instruction makes a second buffer with the same contents. For each run and function (its
-- compilation with the largest known peak) one row per copied array, those that hold most bytes at
-- the peak first. The reason is the first that applies: memory_space (to another memory space, such
-- as a prefetch), layout (the same elements in another order), loop_carry (query carry-copies tells
-- more), argument (of an argument, mostly because it is not donated or is returned unchanged),
-- constant, other.
--
-- wrong when: A copy that fusion has merged into another instruction does not show, and its
-- neighbours may be called copies by name without being one. XLA inserts copies that correctness
-- needs; is_kept_twice tells those that cost memory (both buffers are live together) from those
-- that take over as the original dies. Prefetches into a fast memory space are meant.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 30: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space of the copy.
-- column peak_held_bytes BIGINT: Bytes that the copy holds at the peak [bytes]; NULL without live
--   ranges.
-- column size_bytes BIGINT: Assigned size of the copy [bytes].
-- column is_kept_twice BOOLEAN: Whether copy and original are live together for more than the
--   instant of copying; NULL without live ranges.
-- column reason VARCHAR: memory_space, layout, loop_carry, argument, constant or other.
-- column shape VARCHAR: Shape of the copy with layout.
-- column instruction_name VARCHAR: The copy.
-- column source_name VARCHAR: Instruction that defines what is copied; NULL if unknown.
-- column source_shape VARCHAR: Shape with layout of what is copied; NULL if unknown.
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
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
ranked_copies AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    copy_details.color,
    CASE
      WHEN function_modules.peak_bytes IS NOT NULL THEN coalesce(peak_values.held_bytes, 0)
    END AS peak_held_bytes,
    copy_details.size_bytes,
    copy_details.is_kept_twice,
    CASE
      WHEN copy_details.color <> copy_details.source_color THEN 'memory_space'
      WHEN copy_details.shape <> copy_details.source_shape THEN 'layout'
      WHEN copy_details.carry_role IS NOT NULL THEN 'loop_carry'
      WHEN copy_details.source_allocation_kind IN ('parameter', 'donated_parameter')
        AND copy_details.source_opcode = 'parameter' THEN 'argument'
      WHEN copy_details.source_opcode = 'constant' THEN 'constant'
      ELSE 'other'
    END AS reason,
    copy_details.shape,
    copy_details.instruction_name,
    copy_details.source_name,
    copy_details.source_shape,
    copy_details.module_id,
    copy_details.value_id,
    copy_details.source_value_id,
    row_number() OVER (
      ORDER BY
        CASE
          WHEN function_modules.peak_bytes IS NOT NULL THEN coalesce(peak_values.held_bytes, 0)
        END DESC NULLS LAST,
        copy_details.size_bytes DESC,
        function_modules.run_name,
        function_modules.function_name,
        function_modules.platform NULLS LAST,
        function_modules.color,
        copy_details.value_id
    ) AS place
  FROM function_modules
  CROSS JOIN params
  JOIN copy_details
    ON copy_details.module_id = function_modules.module_id
    AND copy_details.color = function_modules.color
  LEFT JOIN peak_values
    ON peak_values.module_id = copy_details.module_id
    AND peak_values.value_id = copy_details.value_id
  WHERE (
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
answers AS (
  SELECT
    ranked_copies.run_name,
    ranked_copies.function_name,
    ranked_copies.color,
    ranked_copies.peak_held_bytes,
    ranked_copies.size_bytes,
    ranked_copies.is_kept_twice,
    ranked_copies.reason,
    ranked_copies.shape,
    ranked_copies.instruction_name,
    ranked_copies.source_name,
    ranked_copies.source_shape,
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
    NULL AS is_kept_twice,
    NULL AS reason,
    NULL AS shape,
    NULL AS instruction_name,
    NULL AS source_name,
    NULL AS source_shape,
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
  answers.is_kept_twice,
  answers.reason,
  answers.shape,
  answers.instruction_name,
  answers.source_name,
  answers.source_shape,
  answers.op_name,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
