-- One row per instruction that moves an array between a device's memory and that of the host.
CREATE OR REPLACE VIEW host_transfers AS
WITH host_values AS (
  SELECT
    "values".module_id, "values".value_id, "values".allocation_index, "values".offset_bytes,
    "values".size_bytes
  FROM "values"
  JOIN modules ON modules.module_id = "values".module_id
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  JOIN memory_spaces
    ON memory_spaces.platform = modules.platform
    AND memory_spaces.color = allocations.color
    AND memory_spaces.memory_space_name = 'host'
  -- All memory of a CPU is host memory.
  WHERE allocations.color <> 0
    AND "values".shape NOT LIKE '(%'
),
device_values AS (
  SELECT "values".module_id, "values".value_id, "values".size_bytes
  FROM "values"
  ANTI JOIN host_values
    ON host_values.module_id = "values".module_id
    AND host_values.value_id = "values".value_id
  WHERE "values".module_id IN (SELECT host_values.module_id FROM host_values)
    AND "values".shape NOT LIKE '(%'
    -- Scalars are offsets, not data.
    AND "values".shape NOT LIKE '%[]%'
),
movers AS (
  SELECT instructions.module_id, instructions.instruction_name, instructions.opcode
  FROM instructions
  WHERE instructions.module_id IN (SELECT host_values.module_id FROM host_values)
    AND (
      instructions.opcode IN ('copy', 'fusion', 'dynamic-slice', 'dynamic-update-slice')
      OR instructions.opcode LIKE '%-start'
    )
),
-- What a move writes: element 0 of a copy-start, element 1 of another start.
written AS (
  SELECT movers.module_id, movers.instruction_name, positions.value_id
  FROM movers
  JOIN positions
    ON positions.module_id = movers.module_id
    AND positions.instruction_name = movers.instruction_name
  WHERE CASE
    WHEN movers.opcode = 'copy-start' THEN positions.shape_index = '{0}'
    WHEN movers.opcode LIKE '%-start'
      THEN positions.shape_index = '{1}' OR starts_with(positions.shape_index, '{1,')
    ELSE TRUE
  END
),
pairs AS (
  SELECT
    written.module_id, written.instruction_name,
    TRUE AS is_to_host,
    host_values.value_id AS host_value_id, device_values.value_id AS device_value_id,
    device_values.size_bytes
  FROM written
  JOIN host_values
    ON host_values.module_id = written.module_id
    AND host_values.value_id = written.value_id
  JOIN uses
    ON uses.module_id = written.module_id
    AND uses.instruction_name = written.instruction_name
  JOIN device_values
    ON device_values.module_id = uses.module_id
    AND device_values.value_id = uses.value_id
  UNION ALL
  SELECT
    written.module_id, written.instruction_name,
    FALSE AS is_to_host,
    host_values.value_id AS host_value_id, device_values.value_id AS device_value_id,
    device_values.size_bytes
  FROM written
  JOIN device_values
    ON device_values.module_id = written.module_id
    AND device_values.value_id = written.value_id
  JOIN uses
    ON uses.module_id = written.module_id
    AND uses.instruction_name = written.instruction_name
  JOIN host_values
    ON host_values.module_id = uses.module_id
    AND host_values.value_id = uses.value_id
),
ranked AS (
  SELECT
    pairs.module_id, pairs.instruction_name, pairs.is_to_host, pairs.host_value_id,
    pairs.device_value_id, pairs.size_bytes,
    row_number() OVER (
      PARTITION BY pairs.module_id, pairs.instruction_name, pairs.is_to_host
      ORDER BY pairs.size_bytes DESC, pairs.device_value_id, pairs.host_value_id
    ) AS place
  FROM pairs
),
-- The instruction that a start wraps moves the same array, to or from the same bytes.
moves AS (
  SELECT
    ranked.module_id, ranked.instruction_name, ranked.is_to_host,
    row_number() OVER (
      PARTITION BY
        ranked.module_id, ranked.is_to_host, ranked.device_value_id, host_values.allocation_index,
        host_values.offset_bytes
      ORDER BY
        CASE WHEN movers.opcode LIKE '%-start' THEN 0 ELSE 1 END, ranked.instruction_name
    ) AS place
  FROM ranked
  JOIN movers
    ON movers.module_id = ranked.module_id
    AND movers.instruction_name = ranked.instruction_name
  JOIN host_values
    ON host_values.module_id = ranked.module_id
    AND host_values.value_id = ranked.host_value_id
  WHERE ranked.place = 1
)
SELECT
  ranked.module_id, ranked.instruction_name, ranked.is_to_host, ranked.host_value_id,
  host_values.allocation_index AS host_allocation_index,
  host_values.offset_bytes AS host_offset_bytes, host_values.size_bytes AS host_size_bytes,
  ranked.device_value_id, ranked.size_bytes
FROM ranked
JOIN moves
  ON moves.module_id = ranked.module_id
  AND moves.instruction_name = ranked.instruction_name
  AND moves.is_to_host = ranked.is_to_host
JOIN host_values
  ON host_values.module_id = ranked.module_id
  AND host_values.value_id = ranked.host_value_id
WHERE ranked.place = 1
  AND moves.place = 1;
COMMENT ON VIEW host_transfers IS
  'One row per instruction that moves an array from device memory to host memory or back: copy, copy-start, writes and reads of a slice, and fusions of these; for asynchronous ones, their start. On GPU and TPU, where the host has a memory space of its own. Key: module_id, instruction_name, is_to_host.';
COMMENT ON COLUMN host_transfers.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN host_transfers.instruction_name IS 'The instruction: instructions.instruction_name.';
COMMENT ON COLUMN host_transfers.is_to_host IS 'Whether it moves to the host (offload), else back to the device.';
COMMENT ON COLUMN host_transfers.host_value_id IS 'The value in host memory: values.value_id.';
COMMENT ON COLUMN host_transfers.host_allocation_index IS 'Its allocation: values.allocation_index.';
COMMENT ON COLUMN host_transfers.host_offset_bytes IS 'Its place there [bytes]: values.offset_bytes.';
COMMENT ON COLUMN host_transfers.host_size_bytes IS 'Its size [bytes]: values.size_bytes.';
COMMENT ON COLUMN host_transfers.device_value_id IS 'The array on the device, the largest of several: values.value_id.';
COMMENT ON COLUMN host_transfers.size_bytes IS 'Its size [bytes]: the bytes that each execution of the instruction moves.';
