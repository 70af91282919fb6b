-- One row per value that holds bytes at the peak, was made by XLA without an op_name and is of use
-- to an instruction that has one: what it is for.
CREATE OR REPLACE VIEW named_uses AS
WITH RECURSIVE walks AS (
  SELECT
    peak_values.module_id,
    peak_values.value_id,
    instructions.instruction_name,
    instructions.op_name,
    0 AS step_count
  FROM peak_values
  JOIN "values"
    ON "values".module_id = peak_values.module_id
    AND "values".value_id = peak_values.value_id
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE instructions.op_name IS NULL
    AND peak_values.allocation_kind IN ('temp', 'output')
  UNION ALL
  (
    SELECT
      walks.module_id,
      walks.value_id,
      instructions.instruction_name,
      instructions.op_name,
      walks.step_count + 1 AS step_count
    FROM walks
    JOIN "values"
      ON "values".module_id = walks.module_id
      AND "values".instruction_name = walks.instruction_name
      AND (walks.step_count > 0 OR "values".value_id = walks.value_id)
    JOIN uses
      ON uses.module_id = "values".module_id
      AND uses.value_id = "values".value_id
    JOIN instructions
      ON instructions.module_id = uses.module_id
      AND instructions.instruction_name = uses.instruction_name
    WHERE walks.op_name IS NULL
      AND walks.step_count < 4
      -- Uses inside a fused or called computation stand beside that of the caller; such have no
      -- place in the program.
      AND instructions.program_order IS NOT NULL
    QUALIFY row_number() OVER (
      PARTITION BY walks.module_id, walks.value_id
      ORDER BY
        instructions.op_name IS NULL, instructions.program_order, instructions.instruction_name
    ) = 1
  )
)
SELECT
  walks.module_id,
  walks.value_id,
  walks.step_count,
  instructions.instruction_name,
  instructions.opcode,
  instructions.op_name,
  op_path(instructions.op_name) AS op_path,
  strip_op_path(op_path(instructions.op_name)) AS stripped_op_path,
  jit_path(instructions.op_name) AS jit_path,
  instructions.source_file,
  instructions.source_line,
  CASE
    WHEN stack_frames.stack_frame_id IS NOT NULL THEN own_frames.source_file
    WHEN NOT is_library_path(instructions.source_file) THEN instructions.source_file
  END AS own_source_file,
  CASE
    WHEN stack_frames.stack_frame_id IS NOT NULL THEN own_frames.source_line
    WHEN NOT is_library_path(instructions.source_file) THEN instructions.source_line
  END AS own_source_line,
  own_frames.function_name AS own_function_name,
  instructions.stack_frame_id
FROM walks
JOIN instructions
  ON instructions.module_id = walks.module_id
  AND instructions.instruction_name = walks.instruction_name
LEFT JOIN stack_frames
  ON stack_frames.module_id = instructions.module_id
  AND stack_frames.stack_frame_id = instructions.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id
WHERE walks.op_name IS NOT NULL;
COMMENT ON VIEW named_uses IS
  'One row per value of peak_values in a temp or output allocation that has no op_name (copies, conversions, broadcasts, tuples that XLA made), with what it is for: of its uses in program order the first that has an op_name; if none has, that of its first use, and so on through four. What a loop carries is named for the while. No row where this leads to no op_name. Key: module_id, value_id.';
COMMENT ON COLUMN named_uses.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN named_uses.value_id IS 'The value without an op_name: peak_values.value_id.';
COMMENT ON COLUMN named_uses.step_count IS 'Uses from the value to the instruction: 1 if that uses the value itself, at most 4.';
COMMENT ON COLUMN named_uses.instruction_name IS 'The instruction that it is for: uses.instruction_name.';
COMMENT ON COLUMN named_uses.opcode IS 'Its opcode: instructions.opcode; NULL if unknown.';
COMMENT ON COLUMN named_uses.op_name IS 'Its scope path, as printed: instructions.op_name.';
COMMENT ON COLUMN named_uses.op_path IS 'Its scope path in one spelling: macro op_path of op_name.';
COMMENT ON COLUMN named_uses.stripped_op_path IS 'The same without the elements that JAX adds: macro strip_op_path.';
COMMENT ON COLUMN named_uses.jit_path IS 'Jitted functions it lies in, outermost first: macro jit_path of op_name; NULL if there is none.';
COMMENT ON COLUMN named_uses.source_file IS 'Its innermost source file: instructions.source_file; NULL if unknown.';
COMMENT ON COLUMN named_uses.source_line IS 'Its innermost source line: instructions.source_line; NULL if unknown.';
COMMENT ON COLUMN named_uses.own_source_file IS 'Its innermost source file that is not library code (is_library_path); NULL if there is none or it is unknown.';
COMMENT ON COLUMN named_uses.own_source_line IS 'Line in own_source_file; NULL as that.';
COMMENT ON COLUMN named_uses.own_function_name IS 'Python function of the innermost frame that is not library code: stack_frames.function_name; NULL if unknown.';
COMMENT ON COLUMN named_uses.stack_frame_id IS 'Its innermost frame: instructions.stack_frame_id; NULL if unknown.';
