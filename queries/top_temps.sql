-- title: Largest temp values and temp arenas per jitted function
-- group: peak
-- engines: duckdb, spark, sail
--
-- Shows the module with the largest temp arena in a memory space for each run and function, and the
-- largest values in that arena. The arena is the sum of the temp allocations, which the program
-- takes as a whole; its values share addresses at different times, so their sizes do not add up to
-- it. A buffer is listed once: values of the same size at the same offset of an allocation with
-- adjacent or overlapping live ranges are the same bytes under several names, such as the input,
-- carry and result of a loop, or in-place updates. The first of them with an op_name represents
-- all, else the first; values that merge others (phi) do not count.
--
-- param run, function, platform, color, module, loops
-- param top_functions BIGINT = 10: Functions (of one run and memory space) to show, largest temp
--   arena first.
-- param top_n BIGINT = 5: Buffers to show for each.
--
-- column run_name, function_name, platform, color
-- column temp_bytes HUGEINT: Temp arena of the module [bytes].
-- column size_bytes BIGINT: Assigned size of the buffer [bytes].
-- column shape VARCHAR: Shape of the value with layout.
-- column opcode, instruction_name
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Its innermost file:line that is not library code; "saved file:line" for
--   what a loop stacks, "library file:line" if everything is library code; NULL if unknown.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('top_functions')::BIGINT, 10) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 5) AS top_n
),
arenas AS (
  SELECT
    run_name,
    coalesce(function_name, module_key) AS known_name,
    platform, module_id, color, temp_bytes,
    row_number() OVER (
      PARTITION BY run_name, coalesce(function_name, module_key), platform, color
      ORDER BY temp_bytes DESC, module_key
    ) AS module_place
  FROM asked_modules
  WHERE temp_bytes > 0
),
ranked_functions AS (
  SELECT
    run_name, known_name, platform, module_id, color, temp_bytes,
    row_number() OVER (
      ORDER BY temp_bytes DESC, run_name, known_name, color, platform NULLS LAST
    ) AS function_place
  FROM arenas
  WHERE module_place = 1
),
-- Tables, not value_details: to plan its joins twice takes DuckDB a tenth of this query.
arena_values AS (
  SELECT
    ranked_functions.function_place, temps.value_id, temps.allocation_index, temps.offset_bytes,
    temps.size_bytes, temps.is_phi, live_ranges.start_time, instructions.op_name,
    CASE
      WHEN live_ranges.start_time <= max(live_ranges.end_time) OVER (
        PARTITION BY
          ranked_functions.function_place, temps.allocation_index, temps.offset_bytes,
          temps.size_bytes
        ORDER BY live_ranges.start_time NULLS FIRST, temps.value_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) THEN 0
      ELSE 1
    END AS is_new
  FROM ranked_functions
  CROSS JOIN params
  JOIN allocations
    ON allocations.module_id = ranked_functions.module_id
    AND allocations.color = ranked_functions.color
  JOIN "values" AS temps
    ON temps.module_id = allocations.module_id
    AND temps.allocation_index = allocations.allocation_index
  LEFT JOIN live_ranges
    ON live_ranges.module_id = temps.module_id
    AND live_ranges.value_id = temps.value_id
  LEFT JOIN instructions
    ON instructions.module_id = temps.module_id
    AND instructions.instruction_name = temps.instruction_name
  WHERE ranked_functions.function_place <= params.top_functions
    AND allocations.kind = 'temp'
),
buffer_values AS (
  SELECT
    function_place, value_id, allocation_index, offset_bytes, size_bytes, is_phi, start_time,
    op_name,
    sum(is_new) OVER (
      PARTITION BY function_place, allocation_index, offset_bytes, size_bytes
      ORDER BY start_time NULLS FIRST, value_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS buffer_place
  FROM arena_values
),
named_buffers AS (
  SELECT
    function_place, value_id,
    row_number() OVER (
      PARTITION BY function_place, allocation_index, offset_bytes, size_bytes, buffer_place
      ORDER BY CASE WHEN op_name IS NULL THEN 1 ELSE 0 END, start_time, value_id
    ) AS name_place
  FROM buffer_values
  WHERE NOT is_phi
),
ranked_values AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.known_name AS function_name, ranked_functions.platform,
    ranked_functions.color, ranked_functions.temp_bytes, ranked_functions.function_place,
    value_details.size_bytes, value_details.shape, value_details.opcode,
    value_details.instruction_name,
    coalesce(origins.op_name, value_details.op_name) AS op_name,
    coalesce(
      origins.relation || origins.own_source, value_details.own_source,
      origins.relation || origins.library_source, value_details.library_source
    ) AS source,
    row_number() OVER (
      PARTITION BY ranked_functions.function_place
      ORDER BY value_details.size_bytes DESC, value_details.value_id
    ) AS place
  FROM ranked_functions
  CROSS JOIN params
  JOIN named_buffers
    ON named_buffers.function_place = ranked_functions.function_place
    AND named_buffers.name_place = 1
  JOIN value_details
    ON value_details.module_id = ranked_functions.module_id
    AND value_details.value_id = named_buffers.value_id
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = value_details.module_id
    AND origins.value_id = value_details.value_id
    AND params.loops = 'origin'
),
answers AS (
  SELECT
    run_name, function_name, platform, color, temp_bytes, size_bytes, shape, opcode,
    instruction_name,
    op_name, source, CAST(NULL AS VARCHAR) AS unknown_reason, function_place, place
  FROM ranked_values
  CROSS JOIN params
  WHERE place <= params.top_n
  UNION ALL
  SELECT
    run_name, function_name, platform, color, NULL AS temp_bytes, NULL AS size_bytes, NULL AS shape,
    NULL AS opcode, NULL AS instruction_name, NULL AS op_name, NULL AS source, unknown_reason,
    0 AS function_place, name_place AS place
  FROM answered_functions
  WHERE unknown_reason IS NOT NULL
)
SELECT
  run_name, function_name, platform, color, temp_bytes, size_bytes, shape, opcode, instruction_name,
  op_name, source, unknown_reason
FROM answers
ORDER BY function_place, place;
