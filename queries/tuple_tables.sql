-- title: Bytes of the pointer tables of tuples
-- group: saving
-- engines: duckdb, spark, sail
--
-- A tuple in memory is a table of pointers to its elements: 8 bytes each, more on the TPU, where
-- tables are padded. Results of a program and carries of loops with thousands of elements make
-- large ones, once per loop, condition and body. Lists the tables by the opcode that makes them,
-- for each run and function (its compilation with the largest need), most bytes held at the peak
-- first. Fewer, larger arrays in the carry or the result (stacked parameters) make them small.
--
-- wrong when: Tables in temp allocations share their bytes over time, so table_bytes is not their
-- total memory. If the runtime passes a loop's elements one by one, the table may never be written,
-- although it is allocated.
--
-- param run, function, platform, color, module, peak, step, top_n
--
-- column run_name, function_name, platform, color
-- column peak_held_bytes HUGEINT: Bytes that such tables hold at the peak [bytes]; NULL without
--   live ranges.
-- column opcode VARCHAR: Opcode that makes the tuple; NULL if unknown.
-- column table_count BIGINT: Tables, without those that merge others (phi).
-- column table_bytes HUGEINT: Sum of their assigned sizes [bytes].
-- column largest_table_bytes BIGINT: Assigned size of the largest table [bytes].
-- column largest_element_count BIGINT: Its number of elements.
-- column largest_table VARCHAR: Instruction that makes it.
-- column unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, peak_bytes, module_id, color, run_name, function_name, platform, unknown_reason
  FROM answered_instants
),
tables AS (
  SELECT
    functions.name_place, functions.peak_bytes, allocations.module_id, allocations.color,
    "values".instruction_name, "values".size_bytes, "values".is_phi, shapes.element_count,
    coalesce(instructions.opcode, '') AS opcode,
    coalesce(held.held_bytes, 0) AS held_bytes,
    row_number() OVER (
      PARTITION BY functions.name_place, coalesce(instructions.opcode, '')
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.color = functions.color
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN asked_peak_values AS held
    ON held.module_id = "values".module_id
    AND held.value_id = "values".value_id
  WHERE shapes.is_tuple
    AND allocations.kind <> 'thread_local'
),
opcodes AS (
  SELECT
    module_id, color,
    CASE WHEN peak_bytes IS NOT NULL THEN sum(held_bytes) END AS peak_held_bytes,
    nullif(opcode, '') AS opcode_name,
    count(CASE WHEN NOT is_phi THEN 1 END) AS table_count,
    sum(CASE WHEN is_phi THEN 0 ELSE size_bytes END) AS table_bytes,
    max(CASE WHEN place = 1 THEN size_bytes END) AS largest_table_bytes,
    max(CASE WHEN place = 1 THEN element_count END) AS largest_element_count,
    max(CASE WHEN place = 1 THEN instruction_name END) AS largest_table,
    row_number() OVER (
      ORDER BY
        CASE WHEN peak_bytes IS NOT NULL THEN sum(held_bytes) END DESC NULLS LAST,
        sum(CASE WHEN is_phi THEN 0 ELSE size_bytes END) DESC,
        name_place, opcode
    ) AS place
  FROM tables
  GROUP BY name_place, peak_bytes, module_id, color, opcode
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  opcodes.peak_held_bytes, opcodes.opcode_name AS opcode,
  opcodes.table_count, opcodes.table_bytes, opcodes.largest_table_bytes,
  opcodes.largest_element_count, opcodes.largest_table, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN opcodes
  ON opcodes.module_id = functions.module_id
  AND opcodes.color = functions.color
  AND opcodes.place <= params.top_n
WHERE opcodes.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY opcodes.place NULLS FIRST, functions.name_place;
