-- title: Largest values of all kinds, equal ones together
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists large arrays of all kinds: arguments, outputs, constants and temps. Values of one function
-- with the same kind of allocation, shape, size, opcode and source line, such as those of the
-- layers of a network, are one row. It ignores when they are live, and values may share bytes with
-- others: sizes do not add up to memory used. Values that merge others (phi), which are the same
-- bytes again, and thread-local ones are left out.
--
-- param run, function, platform, color, module, loops
-- param top_n BIGINT = 30: Rows to return, largest value first.
--
-- column run_name, function_name
-- column platform VARCHAR: cpu, gpu or tpu; NULL if unknown.
-- column color
-- column size_bytes BIGINT: Assigned size of each of the values [bytes].
-- column value_count BIGINT: Number of such values.
-- column module_count BIGINT: Number of modules that they are in.
-- column allocation_kind, shape
-- column opcode VARCHAR: Opcode of the defining instructions; NULL if unknown.
-- column source VARCHAR: Innermost file:line that is not library code of what made the data; "saved
--   file:line" for what a loop stacks, "library file:line" if everything is library code; NULL if
--   unknown.
-- column instruction_name VARCHAR: Defining instruction of one of the values, the first by name.
-- column op_name VARCHAR: Scope path of one of them, the first by name; NULL if the dump has none.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
located_values AS (
  SELECT
    asked_modules.run_name,
    coalesce(asked_modules.function_name, asked_modules.module_key) AS known_name,
    asked_modules.module_id, asked_modules.platform, asked_modules.color, value_details.size_bytes,
    value_details.allocation_kind, value_details.shape, value_details.opcode,
    coalesce(
      origins.relation || origins.own_source, value_details.own_source,
      origins.relation || origins.library_source, value_details.library_source
    ) AS source,
    value_details.instruction_name, coalesce(origins.op_name, value_details.op_name) AS op_name
  FROM asked_modules
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = asked_modules.module_id
    AND value_details.color = asked_modules.color
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = value_details.module_id
    AND origins.value_id = value_details.value_id
    AND params.loops = 'origin'
  WHERE coalesce(value_details.allocation_kind, '') <> 'thread_local'
    AND NOT value_details.is_phi
    AND value_details.size_bytes > 0
),
answers AS (
  SELECT
    run_name,
    known_name AS function_name,
    platform, color, size_bytes,
    count(*) AS value_count,
    count(DISTINCT module_id) AS module_count,
    allocation_kind, shape, opcode,
    source,
    min(instruction_name) AS first_instruction_name,
    min(op_name) AS first_op_name,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    0 AS name_place,
    row_number() OVER (
      ORDER BY
        size_bytes DESC, run_name, known_name, platform NULLS LAST, color, allocation_kind, shape,
        opcode NULLS LAST, source NULLS LAST
    ) AS place
  FROM located_values
  GROUP BY
    run_name, known_name, platform, color, size_bytes, allocation_kind, shape, opcode, source
  UNION ALL
  SELECT
    run_name, function_name, platform, color, NULL AS size_bytes, NULL AS value_count,
    NULL AS module_count, NULL AS allocation_kind, NULL AS shape, NULL AS opcode, NULL AS source,
    NULL AS first_instruction_name, NULL AS first_op_name, unknown_reason, name_place, 0 AS place
  FROM answered_functions
  WHERE unknown_reason IS NOT NULL
)
SELECT
  run_name, function_name, platform, color, size_bytes, value_count, module_count,
  allocation_kind, shape, opcode, source, first_instruction_name AS instruction_name,
  first_op_name AS op_name, unknown_reason
FROM answers
CROSS JOIN params
WHERE place <= params.top_n
ORDER BY place, name_place;
