-- One row per value that a loop carries or returns, with details of what made its data.
CREATE OR REPLACE VIEW value_origin_details AS
WITH framed AS (
  SELECT
    value_origins.*,
    CASE
      WHEN value_origins.opcode = 'parameter' THEN
        CASE value_origins.origin_kind
          WHEN 'stacked' THEN 'saved '
          WHEN 'slice' THEN 'slice of '
          ELSE 'copy of '
        END
      WHEN value_origins.origin_kind IN ('stacked', 'slice') THEN 'saved '
      ELSE ''
    END AS relation,
    op_path(value_origins.op_name) AS op_path,
    stack_frames.stack_frame_id IS NOT NULL AS is_framed,
    own_frames.source_file AS frame_file,
    own_frames.source_line AS frame_line,
    own_frames.function_name AS own_function_name,
    is_library_path(value_origins.source_file, modules.own_pattern) AS is_library
  FROM value_origins
  JOIN modules ON modules.module_id = value_origins.module_id
  LEFT JOIN stack_frames
    ON stack_frames.module_id = value_origins.module_id
    AND stack_frames.stack_frame_id = value_origins.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
)
SELECT
  framed.module_id, framed.value_id, framed.origin_kind, framed.relation, framed.instruction_name,
  framed.opcode, framed.op_name,
  framed.op_path,
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
  coalesce(
    own_source_file || ':' || own_source_line,
    CASE framed.opcode WHEN 'parameter' THEN framed.op_name END
  ) AS own_source,
  CASE
    WHEN own_source IS NULL AND own_source_file IS NULL AND framed.is_library
      THEN library_name(framed.source_file, framed.source_line)
  END AS library_source,
  framed.stack_frame_id, framed.loop_instruction_name, framed.slice_shape, framed.slice_bytes,
  framed.slice_count, framed.trip_count, framed.is_layer_input,
  coalesce(framed.slice_count IS NOT NULL AND is_forward(framed.op_name), FALSE) AS is_residual,
  framed.is_exact
FROM framed;
COMMENT ON VIEW value_origin_details IS
  'One row per row of value_origins: a value that a loop carries or returns, with the instruction that made its data. Key: module_id, value_id.';
COMMENT ON COLUMN value_origin_details.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN value_origin_details.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN value_origin_details.origin_kind IS 'value_origins.origin_kind.';
COMMENT ON COLUMN value_origin_details.relation IS 'Relation of the value to that instruction''s result, as answers show it: "saved " (a loop stacks it), "slice of " and "copy of " (a parameter of the program), else empty.';
COMMENT ON COLUMN value_origin_details.instruction_name IS 'The instruction that made the data: value_origins.instruction_name; NULL if none is known.';
COMMENT ON COLUMN value_origin_details.opcode IS 'Its opcode: value_origins.opcode; NULL where instruction_name is.';
COMMENT ON COLUMN value_origin_details.op_name IS 'Its scope path, as printed: value_origins.op_name; NULL if it has none.';
COMMENT ON COLUMN value_origin_details.op_path IS 'Its scope path, normalized: macro op_path of op_name; NULL where that is.';
COMMENT ON COLUMN value_origin_details.stripped_op_path IS 'The same without the elements that JAX adds: macro strip_op_path; NULL where op_name is.';
COMMENT ON COLUMN value_origin_details.jit_path IS 'Jitted functions it is in, outermost first: macro jit_path of op_name; NULL if there is none.';
COMMENT ON COLUMN value_origin_details.source_file IS 'Its innermost source file: value_origins.source_file; NULL if unknown.';
COMMENT ON COLUMN value_origin_details.source_line IS 'Its innermost source line: value_origins.source_line; NULL if unknown.';
COMMENT ON COLUMN value_origin_details.own_source_file IS 'Its innermost source file that is not library code (is_library_path); NULL if there is none or it is unknown.';
COMMENT ON COLUMN value_origin_details.own_source_line IS 'Line in own_source_file; NULL where that is.';
COMMENT ON COLUMN value_origin_details.own_function_name IS 'Python function of that line: stack_frames.function_name; NULL if unknown.';
COMMENT ON COLUMN value_origin_details.own_source IS 'own_source_file and own_source_line as FILE:LINE, or the name of a parameter; NULL if neither is known.';
COMMENT ON COLUMN value_origin_details.library_source IS 'Where own_source is NULL and its innermost line is library code, that line as "library FILE:LINE" (macro library_source); else NULL.';
COMMENT ON COLUMN value_origin_details.stack_frame_id IS 'Its innermost frame: value_origins.stack_frame_id; NULL if unknown.';
COMMENT ON COLUMN value_origin_details.loop_instruction_name IS 'value_origins.loop_instruction_name.';
COMMENT ON COLUMN value_origin_details.slice_shape IS 'value_origins.slice_shape.';
COMMENT ON COLUMN value_origin_details.slice_bytes IS 'value_origins.slice_bytes [bytes].';
COMMENT ON COLUMN value_origin_details.slice_count IS 'value_origins.slice_count.';
COMMENT ON COLUMN value_origin_details.trip_count IS 'value_origins.trip_count.';
COMMENT ON COLUMN value_origin_details.is_layer_input IS 'value_origins.is_layer_input.';
COMMENT ON COLUMN value_origin_details.is_residual IS 'Whether a loop stacks it in the forward pass of a gradient, by its op_name (within jvp, not transpose): what a checkpoint policy can drop unless is_layer_input. FALSE for gradients that a loop stacks, and where slice_count is NULL.';
COMMENT ON COLUMN value_origin_details.is_exact IS 'value_origins.is_exact.';
