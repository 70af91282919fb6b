-- One row per instruction that reads or writes device memory: the bytes of one run of the module.
CREATE OR REPLACE VIEW instruction_traffic AS
WITH arrays AS (
  SELECT
    "values".module_id, "values".value_id, "values".instruction_name, "values".logical_bytes
  FROM "values"
  JOIN modules
    ON modules.module_id = "values".module_id
    AND modules.has_hlo_text
    AND modules.has_used_values
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
    AND allocations.color = 0
    AND NOT allocations.is_thread_local
  -- Of a tuple only the elements are data.
  WHERE "values".shape NOT LIKE '(%'
),
touched AS (
  SELECT arrays.module_id, arrays.instruction_name, arrays.logical_bytes
  FROM arrays
  UNION ALL
  SELECT uses.module_id, uses.instruction_name, arrays.logical_bytes
  FROM uses
  JOIN arrays
    ON arrays.module_id = uses.module_id
    AND arrays.value_id = uses.value_id
),
sums AS (
  SELECT
    touched.module_id, touched.instruction_name,
    CASE WHEN count(*) = count(touched.logical_bytes) THEN sum(touched.logical_bytes) END
      AS whole_bytes
  FROM touched
  GROUP BY touched.module_id, touched.instruction_name
)
SELECT
  sums.module_id, sums.instruction_name,
  CASE
    WHEN executions.instruction_name IS NULL THEN 1
    ELSE executions.execution_count
  END AS execution_count,
  (sums.whole_bytes - coalesce(executions.spared_bytes, 0))
    * CASE
      WHEN executions.instruction_name IS NULL THEN 1
      ELSE executions.execution_count
    END AS accessed_bytes,
  coalesce(
    executions.unknown_reason,
    CASE WHEN sums.whole_bytes IS NULL THEN 'the size of one of its shapes is unknown' END
  ) AS unknown_reason
FROM sums
JOIN instructions
  ON instructions.module_id = sums.module_id
  AND instructions.instruction_name = sums.instruction_name
  -- What it calls has rows of its own, or nothing is moved.
  AND instructions.opcode NOT IN (
    'add-dependency', 'after-all', 'bitcast', 'call', 'conditional', 'constant',
    'get-tuple-element', 'opt-barrier', 'parameter', 'tuple', 'while'
  )
  AND instructions.opcode NOT LIKE '%-done'
  AND instructions.opcode NOT LIKE '%-update'
  AND (
    instructions.opcode NOT LIKE '%-start'
    OR instructions.opcode IN (
      'all-gather-start', 'all-reduce-start', 'collective-permute-start', 'copy-start'
    )
  )
LEFT JOIN instruction_executions AS executions
  ON executions.module_id = sums.module_id
  AND executions.instruction_name = sums.instruction_name;
COMMENT ON VIEW instruction_traffic IS
  'One row per instruction outside of fusions that reads or writes device memory (memory space 0): operands and results of one run of the module, through loops, from the shapes. Of an operand that is only sliced or gathered from, what is taken counts; of an array updated in place, the update; parameters, constants, tuples and their elements, bitcasts, and what only calls others do not. Caches are not known, and a fusion may read an operand twice: a measure to compare programs by, not a measurement. No rows for a module without HLO text, or without uses. Key: module_id, instruction_name.';
COMMENT ON COLUMN instruction_traffic.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN instruction_traffic.instruction_name IS 'The instruction: instructions.instruction_name.';
COMMENT ON COLUMN instruction_traffic.execution_count IS
  'Executions in one run of the module: instruction_executions.execution_count, 1 where it has no row.';
COMMENT ON COLUMN instruction_traffic.accessed_bytes IS
  'Bytes that it reads and writes in all executions of a run [bytes]: of the bare shapes, without padding. NULL if unknown (unknown_reason).';
COMMENT ON COLUMN instruction_traffic.unknown_reason IS
  'Why accessed_bytes is NULL; NULL where it is known.';
