-- One row per instruction with the line and operation of user code that it is attributed to.
CREATE OR REPLACE VIEW instruction_sources AS
WITH used AS (
  -- An instruction that XLA made without an op_name is for its first use that has one.
  SELECT
    "values".module_id, "values".instruction_name,
    min_by(named_uses.stripped_op_path, "values".value_id) AS stripped_op_path,
    min_by(
      coalesce(
        named_uses.own_source_file || ':' || named_uses.own_source_line, named_uses.library_source
      ),
      "values".value_id
    ) AS source,
    min_by(
      coalesce(named_uses.own_function_name, named_uses.own_source_file), "values".value_id
    ) AS function_name
  FROM named_uses
  JOIN "values"
    ON "values".module_id = named_uses.module_id
    AND "values".value_id = named_uses.value_id
  GROUP BY "values".module_id, "values".instruction_name
),
framed AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.program_order,
    instructions.opcode,
    op_path(instructions.op_name) AS op_path,
    instructions.source_file, instructions.source_line,
    stack_frames.stack_frame_id IS NOT NULL AS is_framed,
    own_frames.source_file AS frame_file,
    own_frames.source_line AS frame_line,
    own_frames.function_name AS frame_function_name,
    is_library_path(instructions.source_file, modules.own_pattern) AS is_library,
    used.stripped_op_path AS used_stripped_op_path,
    used.source AS used_source,
    used.function_name AS used_function_name
  FROM instructions
  JOIN modules ON modules.module_id = instructions.module_id
  LEFT JOIN stack_frames
    ON stack_frames.module_id = instructions.module_id
    AND stack_frames.stack_frame_id = instructions.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
  LEFT JOIN used
    ON used.module_id = instructions.module_id
    AND used.instruction_name = instructions.instruction_name
)
SELECT
  framed.module_id, framed.instruction_name, framed.program_order, framed.opcode,
  coalesce(strip_op_path(framed.op_path), framed.used_stripped_op_path) AS stripped_op_path,
  coalesce(
    CASE
      WHEN framed.is_framed THEN framed.frame_file || ':' || framed.frame_line
      WHEN NOT framed.is_library THEN framed.source_file || ':' || framed.source_line
    END,
    framed.used_source,
    CASE WHEN framed.is_library THEN library_name(framed.source_file, framed.source_line) END
  ) AS source,
  coalesce(
    framed.frame_function_name,
    CASE
      WHEN framed.is_framed THEN framed.frame_file
      WHEN NOT framed.is_library THEN framed.source_file
    END,
    framed.used_function_name
  ) AS own_function_name
FROM framed;
COMMENT ON VIEW instruction_sources IS
  'One row per row of instructions with the line and operation that it is attributed to: its own or, if XLA made it without an op_name, those of its first use that has one (named_uses). Key: module_id, instruction_name.';
COMMENT ON COLUMN instruction_sources.stripped_op_path IS
  'Scope path without what JAX adds: macro strip_op_path; NULL if none is known.';
COMMENT ON COLUMN instruction_sources.source IS
  'FILE:LINE of the innermost line that is not library code, "library FILE:LINE" if everything is; NULL if none is known.';
COMMENT ON COLUMN instruction_sources.own_function_name IS
  'Python function of that line, its file if the function is unknown; NULL if neither is known.';
