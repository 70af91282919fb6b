-- One row per collective operation of a module: among devices, synchronous or not.
CREATE OR REPLACE VIEW collectives AS
WITH operations AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.program_order,
    regexp_extract(
      instructions.opcode,
      '^((?:ragged-)?all-to-all|all-(?:reduce|gather)|reduce-scatter|collective-(?:permute|broadcast))(-start)?$',
      1
    ) AS opcode,
    instructions.opcode LIKE '%-start' OR instructions.instruction_name LIKE 'async-%' AS is_async,
    instructions.opcode = 'fusion' AS is_fused,
    instructions.opcode LIKE '%-start' AND instructions.opcode <> 'all-reduce-start'
      AS has_operands_in_shape,
    device_groups(instructions.text) AS device_groups
  FROM instructions
  WHERE regexp_matches(
      instructions.opcode,
      '^((ragged-)?all-to-all|all-(reduce|gather)|reduce-scatter|collective-(permute|broadcast))(-start)?$'
    )
    OR (
      instructions.opcode = 'fusion'
      AND (
        regexp_matches(instructions.instruction_name, '^async-collective-start(\.|$)')
        OR regexp_matches(instructions.text, ', calls=%?async_collective_fusion')
      )
    )
),
-- The instruction that a start wraps has the same value as the start.
wrapped AS (
  SELECT DISTINCT positions.module_id, "values".instruction_name
  FROM operations
  JOIN positions
    ON positions.module_id = operations.module_id
    AND positions.instruction_name = operations.instruction_name
    AND starts_with(positions.shape_index, '{1')
  JOIN "values"
    ON "values".module_id = positions.module_id
    AND "values".value_id = positions.value_id
  WHERE operations.has_operands_in_shape
    AND "values".instruction_name <> operations.instruction_name
)
SELECT
  operations.module_id, operations.instruction_name,
  nullif(operations.opcode, '') AS opcode,
  operations.is_async, operations.is_fused, operations.has_operands_in_shape,
  operations.program_order, operations.device_groups,
  CASE
    -- Pairs of source and target are not groups.
    WHEN operations.opcode = 'collective-permute' THEN NULL
    WHEN operations.device_groups = '{}'
      THEN modules.partition_count::HUGEINT * modules.replica_count
    ELSE device_group_size(operations.device_groups)
  END AS device_group_size
FROM operations
JOIN modules ON modules.module_id = operations.module_id
LEFT JOIN wrapped
  ON wrapped.module_id = operations.module_id
  AND wrapped.instruction_name = operations.instruction_name
WHERE wrapped.module_id IS NULL;
COMMENT ON VIEW collectives IS
  'One row per instruction that is a collective operation (for an asynchronous one, its start) or a TPU fusion that contains one (format sections 7.3 and 7.5). Key: module_id, instruction_name.';
COMMENT ON COLUMN collectives.opcode IS 'all-reduce, all-gather, reduce-scatter, all-to-all, ragged-all-to-all, collective-permute or collective-broadcast; NULL for a fusion, whose text does not show it.';
COMMENT ON COLUMN collectives.is_async IS 'Whether it is the start of an asynchronous chain.';
COMMENT ON COLUMN collectives.is_fused IS 'Whether it is a fusion that contains the collective.';
COMMENT ON COLUMN collectives.has_operands_in_shape IS 'Whether its shape is ((operands), results, contexts…): every start except all-reduce-start.';
COMMENT ON COLUMN collectives.device_groups IS 'replica_groups or source_target_pairs as printed (macro device_groups); NULL if the text has none.';
COMMENT ON COLUMN collectives.device_group_size IS 'Devices in each group (macro device_group_size), all devices where {} is printed; NULL for a permute, which has no groups, and if unknown.';
