-- One row per array that a copy instruction makes, with what it copies.
CREATE OR REPLACE VIEW copy_details AS
WITH copies AS (
  SELECT
    "values".module_id, "values".value_id, "values".instruction_name, "values".allocation_index,
    "values".offset_bytes, "values".size_bytes, "values".shape, instructions.opcode
  FROM instructions
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  WHERE (
      instructions.opcode = 'copy'
      -- {1} is the operand again and {2} a handle; where {0} is the operand, it defines no value.
      OR (instructions.opcode = 'copy-start' AND "values".shape_index = '{0}')
      OR (
        instructions.opcode = 'fusion'
        AND (
          contains(instructions.text, ', calls=%wrapped_copy')
          OR contains(instructions.text, ', calls=wrapped_copy')
        )
      )
    )
    AND "values".shape NOT LIKE '(%'
),
sources AS (
  SELECT
    uses.module_id, uses.instruction_name,
    -- A phi operand may be listed with values that it merges; the lowest id is one of them.
    min(uses.value_id) AS source_value_id
  FROM uses
  JOIN copies
    ON copies.module_id = uses.module_id
    AND copies.instruction_name = uses.instruction_name
  WHERE uses.operand_number = 0
    AND uses.operand_index = '{}'
  GROUP BY uses.module_id, uses.instruction_name
),
loops AS (
  SELECT
    "values".module_id, "values".allocation_index, "values".offset_bytes,
    instructions.program_order,
    min(instructions.instruction_name) AS while_name
  FROM instructions
  JOIN "values"
    ON "values".module_id = instructions.module_id
    AND "values".instruction_name = instructions.instruction_name
  WHERE instructions.opcode = 'while'
    AND "values".is_phi
  GROUP BY
    "values".module_id, "values".allocation_index, "values".offset_bytes, instructions.program_order
),
initial_carries AS (
  SELECT uses.module_id, uses.value_id, min(uses.instruction_name) AS while_name
  FROM uses
  JOIN copies ON copies.module_id = uses.module_id AND copies.value_id = uses.value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
  WHERE instructions.opcode = 'while'
  GROUP BY uses.module_id, uses.value_id
),
-- Two elements of one carry with the same initial value, such as the stacks of a scan, all from one
-- broadcast: the loop makes a different array of each.
elements AS (
  SELECT DISTINCT copies.module_id, copies.value_id
  FROM initial_carries
  JOIN copies
    ON copies.module_id = initial_carries.module_id
    AND copies.value_id = initial_carries.value_id
  JOIN sources
    ON sources.module_id = copies.module_id
    AND sources.instruction_name = copies.instruction_name
  JOIN uses
    ON uses.module_id = sources.module_id
    AND uses.value_id = sources.source_value_id
    AND uses.instruction_name = initial_carries.while_name
)
SELECT
  copies.module_id, copies.value_id, copies.instruction_name, copies.opcode, copies.shape,
  copies.size_bytes, allocations.color, allocations.kind AS allocation_kind, live_ranges.start_time,
  live_ranges.end_time, sources.source_value_id, source_values.instruction_name AS source_name,
  source_instructions.opcode AS source_opcode, source_values.shape AS source_shape,
  source_allocations.color AS source_color, source_allocations.kind AS source_allocation_kind,
  source_ranges.start_time AS source_start_time, source_ranges.end_time AS source_end_time,
  CASE
    WHEN initial_carries.while_name IS NOT NULL THEN 'initial'
    WHEN loops.while_name IS NOT NULL THEN 'returned'
    WHEN source_values.is_phi AND source_instructions.opcode = 'parameter' THEN 'taken'
    WHEN source_values.is_phi AND source_instructions.opcode = 'while' THEN 'result'
  END AS carry_role,
  coalesce(initial_carries.while_name, loops.while_name) AS into_carry_of,
  live_ranges.start_time < source_ranges.end_time
    AND source_ranges.start_time < live_ranges.end_time
    AND elements.value_id IS NULL AS is_kept_twice,
  -- The compiler decides on moves to another memory space.
  live_ranges.start_time < source_ranges.end_time
    AND source_ranges.start_time < live_ranges.end_time
    AND elements.value_id IS NULL
    AND coalesce(source_allocations.color, allocations.color) = allocations.color AS is_avoidable
FROM copies
JOIN allocations
  ON allocations.module_id = copies.module_id
  AND allocations.allocation_index = copies.allocation_index
LEFT JOIN live_ranges
  ON live_ranges.module_id = copies.module_id
  AND live_ranges.value_id = copies.value_id
LEFT JOIN sources
  ON sources.module_id = copies.module_id
  AND sources.instruction_name = copies.instruction_name
LEFT JOIN "values" AS source_values
  ON source_values.module_id = sources.module_id
  AND source_values.value_id = sources.source_value_id
LEFT JOIN allocations AS source_allocations
  ON source_allocations.module_id = source_values.module_id
  AND source_allocations.allocation_index = source_values.allocation_index
LEFT JOIN instructions AS source_instructions
  ON source_instructions.module_id = source_values.module_id
  AND source_instructions.instruction_name = source_values.instruction_name
LEFT JOIN live_ranges AS source_ranges
  ON source_ranges.module_id = sources.module_id
  AND source_ranges.value_id = sources.source_value_id
LEFT JOIN initial_carries
  ON initial_carries.module_id = copies.module_id
  AND initial_carries.value_id = copies.value_id
LEFT JOIN elements
  ON elements.module_id = copies.module_id
  AND elements.value_id = copies.value_id
-- What a body returns lives to the end of the body, where the while itself is in program order.
LEFT JOIN loops
  ON loops.module_id = copies.module_id
  AND loops.allocation_index = copies.allocation_index
  AND loops.offset_bytes = copies.offset_bytes
  AND loops.program_order = live_ranges.end_time;
COMMENT ON VIEW copy_details IS
  'One row per array that a copy makes (copy, copy-start, or a fusion that wraps one copy), with what it copies. Key: module_id, value_id.';
COMMENT ON COLUMN copy_details.value_id IS 'The copy: values.value_id.';
COMMENT ON COLUMN copy_details.instruction_name IS 'The copy instruction: values.instruction_name.';
COMMENT ON COLUMN copy_details.opcode IS 'copy, copy-start or fusion: instructions.opcode.';
COMMENT ON COLUMN copy_details.shape IS 'Shape of the copy with layout: values.shape.';
COMMENT ON COLUMN copy_details.size_bytes IS 'Assigned size of the copy [bytes]: values.size_bytes.';
COMMENT ON COLUMN copy_details.color IS 'Memory space of the copy: allocations.color.';
COMMENT ON COLUMN copy_details.allocation_kind IS 'Role of the copy''s allocation: allocations.kind.';
COMMENT ON COLUMN copy_details.start_time IS 'First live instant of the copy [program order]; NULL without a live range.';
COMMENT ON COLUMN copy_details.end_time IS 'Last live instant of the copy [program order]; NULL without a live range.';
COMMENT ON COLUMN copy_details.source_value_id IS 'The copied value, from uses; NULL if the dump lists no uses.';
COMMENT ON COLUMN copy_details.source_name IS 'Instruction that defines the copied value; NULL where source_value_id is.';
COMMENT ON COLUMN copy_details.source_opcode IS 'Opcode of source_name; NULL if unknown.';
COMMENT ON COLUMN copy_details.source_shape IS 'Shape with layout of the copied value; NULL where source_value_id is.';
COMMENT ON COLUMN copy_details.source_color IS 'Memory space of the copied value; NULL where source_value_id is.';
COMMENT ON COLUMN copy_details.source_allocation_kind IS 'Role of the allocation of the copied value; NULL where source_value_id is.';
COMMENT ON COLUMN copy_details.source_start_time IS 'First live instant of the copied value [program order]; NULL without a live range.';
COMMENT ON COLUMN copy_details.source_end_time IS 'Last live instant of the copied value [program order]; NULL without a live range.';
COMMENT ON COLUMN copy_details.carry_role IS
  'Relation of the copy to the carry of a while loop: initial (the copy is the initial value of an element), returned (the body returns it), taken (the body copies an element of its parameter), result (an element is copied after the loop); NULL if none.';
COMMENT ON COLUMN copy_details.into_carry_of IS 'The while whose carry the copy goes into (carry_role initial or returned); NULL otherwise.';
COMMENT ON COLUMN copy_details.is_kept_twice IS
  'Whether the copy and its source are live together beyond the instant of copying, and not as two elements of the carry of one loop, which makes a different array of each; NULL without live ranges.';
COMMENT ON COLUMN copy_details.is_avoidable IS
  'Whether a program could avoid the copy and hold less: is_kept_twice, and not a move to another memory space, which the compiler decides; NULL without live ranges.';
