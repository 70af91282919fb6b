-- title: Values that occupy given bytes of an allocation, over time
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists the values that use an address over time: all values of one allocation whose bytes overlap
-- the range that starts at first_byte. By default that is the last byte of the largest temp
-- allocation: the values that reach it make the arena as large as it is. Consecutive values without
-- a gap in time are often one buffer under several names: a loop carry, or a result written over
-- its operand. Shows the module with the largest such allocation among those that match the
-- filters.
--
-- param run, function, platform, color, module
-- param allocation BIGINT = NULL: Index of the allocation; NULL takes the largest temp one.
-- param first_byte BIGINT = 0: First byte of the range, from 0 [bytes].
-- param byte_count BIGINT = 1: Length of the range [bytes].
-- param top_n BIGINT = 100: Values to show, earliest first.
--
-- column run_name, function_name, platform
-- column color BIGINT: Memory space of the allocation.
-- column allocation_index BIGINT: The allocation.
-- column allocation_size_bytes BIGINT: Its size [bytes].
-- column start_time BIGINT: First instant at which the value is live [program order]; NULL if it
--   has no live range, as in thread-local allocations and in dumps without live ranges.
-- column end_time BIGINT: Last such instant [program order]; NULL where start_time is.
-- column offset_bytes BIGINT: First byte of the value [bytes].
-- column size_bytes BIGINT: Its assigned size [bytes].
-- column is_phi BOOLEAN: Whether it merges other values, whose bytes it shares.
-- column shape VARCHAR: Its shape with layout.
-- column opcode, instruction_name, shape_index, op_name, source
-- column unknown_reason VARCHAR: Why the peak of a matching module is unknown, in a separate row
--   that has nothing else, comes first and does not count toward top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('allocation')::BIGINT AS allocation,
    coalesce(getvariable('first_byte')::BIGINT, 0) AS first_byte,
    coalesce(getvariable('byte_count')::BIGINT, 1) AS byte_count,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
chosen AS (
  SELECT
    asked_modules.run_name, asked_modules.platform,
    coalesce(asked_modules.function_name, asked_modules.module_key) AS function_name,
    asked_modules.module_id, asked_modules.color, allocations.allocation_index
  FROM asked_modules
  CROSS JOIN params
  JOIN allocations
    ON allocations.module_id = asked_modules.module_id
    AND allocations.color = asked_modules.color
  WHERE allocations.allocation_index = params.allocation
    OR (params.allocation IS NULL AND allocations.kind = 'temp')
  ORDER BY
    allocations.size_bytes DESC, asked_modules.run_name, asked_modules.module_key,
    allocations.allocation_index
  LIMIT 1
),
answers AS (
  SELECT
    chosen.run_name, chosen.function_name, chosen.platform, chosen.color, chosen.allocation_index,
    value_details.allocation_size_bytes, value_details.start_time, value_details.end_time,
    value_details.offset_bytes, value_details.size_bytes, value_details.is_phi, value_details.shape,
    value_details.opcode, value_details.instruction_name, value_details.shape_index,
    value_details.op_name,
    coalesce(value_details.own_source, value_details.library_source) AS source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        value_details.start_time NULLS LAST, value_details.end_time, value_details.offset_bytes,
        value_details.value_id
    ) AS place
  FROM chosen
  CROSS JOIN params
  JOIN value_details
    ON value_details.module_id = chosen.module_id
    AND value_details.allocation_index = chosen.allocation_index
  -- end_bytes has 128 bits: sizes can be close to 2^63.
  WHERE value_details.end_bytes > params.first_byte
    AND value_details.end_bytes - value_details.size_bytes - params.first_byte < params.byte_count
  UNION ALL
  SELECT
    run_name, function_name, platform, color, NULL AS allocation_index,
    NULL AS allocation_size_bytes, NULL AS start_time, NULL AS end_time, NULL AS offset_bytes,
    NULL AS size_bytes, NULL AS is_phi, NULL AS shape, NULL AS opcode, NULL AS instruction_name,
    NULL AS shape_index, NULL AS op_name, NULL AS source, peak_unknown_reason AS unknown_reason,
    0 AS place
  FROM asked_peaks
  WHERE peak_unknown_reason IS NOT NULL
)
SELECT
  run_name, function_name, platform, color, allocation_index, allocation_size_bytes, start_time,
  end_time, offset_bytes, size_bytes, is_phi, shape, opcode, instruction_name, shape_index, op_name,
  source, unknown_reason
FROM answers
CROSS JOIN params
WHERE place <= params.top_n
ORDER BY place, run_name, function_name, platform, color NULLS LAST, unknown_reason;
