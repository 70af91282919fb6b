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
)
SELECT
  instructions.module_id, instructions.instruction_name, instructions.program_order,
  instructions.opcode,
  coalesce(strip_op_path(op_path(instructions.op_name)), used.stripped_op_path)
    AS stripped_op_path,
  coalesce(
    CASE
      WHEN stack_frames.stack_frame_id IS NOT NULL
        THEN own_frames.source_file || ':' || own_frames.source_line
      WHEN NOT is_library_path(instructions.source_file, modules.own_pattern)
        THEN instructions.source_file || ':' || instructions.source_line
    END,
    used.source,
    library_source(instructions.source_file, instructions.source_line, modules.own_pattern)
  ) AS source,
  coalesce(
    own_frames.function_name,
    CASE
      WHEN stack_frames.stack_frame_id IS NOT NULL THEN own_frames.source_file
      WHEN NOT is_library_path(instructions.source_file, modules.own_pattern)
        THEN instructions.source_file
    END,
    used.function_name
  ) AS own_function_name
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
  AND used.instruction_name = instructions.instruction_name;
COMMENT ON VIEW instruction_sources IS
  'One row per row of instructions with the line and operation that it is attributed to: its own or, if XLA made it without an op_name, those of its first use that has one (named_uses). Key: module_id, instruction_name.';
COMMENT ON COLUMN instruction_sources.stripped_op_path IS
  'Scope path without what JAX adds: macro strip_op_path; NULL if none is known.';
COMMENT ON COLUMN instruction_sources.source IS
  'FILE:LINE of the innermost line that is not library code, "library FILE:LINE" if everything is; NULL if none is known.';
COMMENT ON COLUMN instruction_sources.own_function_name IS
  'Python function of that line, its file if the function is unknown; NULL if neither is known.';
