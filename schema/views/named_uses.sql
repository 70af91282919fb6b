-- One row per value that XLA made without an op_name, with details of the instruction it is for.
CREATE OR REPLACE VIEW named_uses AS
WITH framed AS (
  SELECT
    value_users.module_id, value_users.value_id, value_users.step_count,
    instructions.instruction_name, instructions.opcode, instructions.op_name,
    op_path(instructions.op_name) AS op_path,
    instructions.source_file, instructions.source_line,
    stack_frames.stack_frame_id IS NOT NULL AS is_framed,
    own_frames.source_file AS frame_file,
    own_frames.source_line AS frame_line,
    own_frames.function_name AS own_function_name,
    is_library_path(instructions.source_file, modules.own_pattern) AS is_library,
    instructions.stack_frame_id
  FROM value_users
  JOIN modules ON modules.module_id = value_users.module_id
  JOIN "values"
    ON "values".module_id = value_users.module_id
    AND "values".value_id = value_users.user_value_id
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN stack_frames
    ON stack_frames.module_id = instructions.module_id
    AND stack_frames.stack_frame_id = instructions.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
)
SELECT
  framed.module_id, framed.value_id, framed.step_count, framed.instruction_name, framed.opcode,
  framed.op_name, framed.op_path,
  strip_op_path(framed.op_path) AS stripped_op_path,
  jit_names(framed.op_path) AS jit_path,
  framed.source_file, framed.source_line,
  CASE
    WHEN framed.is_framed THEN framed.frame_file
    WHEN NOT framed.is_library THEN framed.source_file
  END AS own_source_file,
  CASE
    WHEN framed.is_framed THEN framed.frame_line
    WHEN NOT framed.is_library THEN framed.source_line
  END AS own_source_line,
  framed.own_function_name,
  CASE
    WHEN own_source_file IS NULL AND framed.is_library
      THEN library_name(framed.source_file, framed.source_line)
  END AS library_source,
  framed.stack_frame_id
FROM framed;
COMMENT ON VIEW named_uses IS
  'One row per row of value_users: a temp or output value that XLA made without an op_name, with the instruction that it is for, which the other columns describe. Key: module_id, value_id.';
COMMENT ON COLUMN named_uses.instruction_name IS 'The instruction that it is for: uses.instruction_name.';
COMMENT ON COLUMN named_uses.op_path IS 'Its scope path, normalized: macro op_path of op_name.';
COMMENT ON COLUMN named_uses.stripped_op_path IS 'The same without the elements that JAX adds: macro strip_op_path.';
COMMENT ON COLUMN named_uses.jit_path IS 'Jitted functions it is in, outermost first: macro jit_path of op_name; NULL if there is none.';
COMMENT ON COLUMN named_uses.own_source_file IS 'Its innermost source file that is not library code (is_library_path); NULL if there is none or it is unknown.';
COMMENT ON COLUMN named_uses.own_source_line IS 'Line in own_source_file; NULL where that is.';
COMMENT ON COLUMN named_uses.own_function_name IS 'Python function of the innermost frame that is not library code: stack_frames.function_name; NULL if unknown.';
COMMENT ON COLUMN named_uses.library_source IS 'Where no line of user code is known, the innermost line as "library FILE:LINE" (macro library_source); NULL if there is one, or no line at all.';
