-- The peaks of the requested functions, with the instruction that each value is attributed to.
CREATE OR REPLACE VIEW attributed_peak_values AS
SELECT
  held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
  held.color, held.peak_bytes, held.unknown_reason, held.module_id, held.allocation_index,
  held.allocation_kind, held.value_id, held.held_bytes, held.shape, held.bare_shape, held.dtype,
  held.opcode, held.op_name, held.source_file, held.source_line, held.stack_frame_id,
  origins.origin_kind, origins.slice_bytes, origins.slice_count,
  coalesce(origins.relation || origins.op_path, held.op_path, 'for ' || named_uses.op_path)
    AS attributed_op_path,
  coalesce(
    origins.relation || origins.stripped_op_path, held.stripped_op_path,
    'for ' || named_uses.stripped_op_path
  ) AS attributed_stripped_op_path,
  coalesce(origins.relation || origins.jit_path, held.jit_path, 'for ' || named_uses.jit_path)
    AS attributed_jit_path,
  coalesce(
    origins.relation || origins.library_source, held.library_source,
    'for ' || named_uses.library_source
  ) AS attributed_library_source,
  coalesce(
    origins.relation || origins.own_source, held.own_source,
    'for ' || named_uses.own_source_file || ':' || named_uses.own_source_line,
    attributed_library_source
  ) AS attributed_source,
  coalesce(
    origins.relation || coalesce(
      origins.source_file || ':' || origins.source_line, origins.own_source
    ),
    held.source_file || ':' || held.source_line,
    'for ' || named_uses.source_file || ':' || named_uses.source_line
  ) AS attributed_leaf_source,
  CASE
    WHEN origins.own_source IS NOT NULL THEN origins.own_source_file
    ELSE coalesce(held.own_source_file, named_uses.own_source_file)
  END AS attributed_own_file,
  CASE
    WHEN origins.own_source IS NOT NULL THEN origins.relation
      || coalesce(origins.own_function_name, origins.own_source_file, origins.own_source)
    WHEN held.own_source_file IS NOT NULL THEN own_frames.function_name
    ELSE coalesce(
      'for ' || coalesce(named_uses.own_function_name, named_uses.own_source_file),
      nullif(regexp_extract(attributed_library_source, '^(.*):[0-9]+$', 1), '')
    )
  END AS attributed_own_function,
  origins.relation AS origin_relation, origins.stack_frame_id AS origin_stack_frame_id,
  origins.source_file AS origin_source_file, origins.source_line AS origin_source_line,
  named_uses.op_name AS use_op_name, named_uses.stack_frame_id AS use_stack_frame_id,
  named_uses.source_file AS use_source_file, named_uses.source_line AS use_source_line
FROM answered_peak_values AS held
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = held.module_id
  AND origins.value_id = held.value_id
  AND held.allocation_kind IN ('temp', 'output')
  AND coalesce(getvariable('loops')::VARCHAR, 'origin') = 'origin'
LEFT JOIN named_uses
  ON named_uses.module_id = held.module_id
  AND named_uses.value_id = held.value_id
  AND coalesce(getvariable('unnamed')::VARCHAR, 'use') = 'use'
LEFT JOIN stack_frames
  ON stack_frames.module_id = held.module_id
  AND stack_frames.stack_frame_id = held.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id;
COMMENT ON VIEW attributed_peak_values IS
  'Rows of answered_peak_values with the instruction that each value is attributed to: the one that made the data, if a loop carries the value (value_origins; not with the variable loops = ''carrier''); else the one that defines it; if XLA made that without an op_name, the one it is for (named_uses; not with the variable unnamed = ''none''). Key: as answered_peak_values.';
COMMENT ON COLUMN attributed_peak_values.origin_kind IS 'Origin of the data that a loop carries: value_origins.origin_kind; NULL for all other values and with loops = ''carrier''.';
COMMENT ON COLUMN attributed_peak_values.slice_bytes IS 'What one step adds to the stack: value_origins.slice_bytes [bytes]; NULL if the value is not a stack or origin_kind is NULL.';
COMMENT ON COLUMN attributed_peak_values.slice_count IS 'value_origins.slice_count; NULL where slice_bytes is.';
COMMENT ON COLUMN attributed_peak_values.attributed_op_path IS 'Scope path of that instruction, normalized, with the relation to it in front: saved, for; NULL if it has none.';
COMMENT ON COLUMN attributed_peak_values.attributed_stripped_op_path IS 'The same without the elements that JAX adds; NULL where that is.';
COMMENT ON COLUMN attributed_peak_values.attributed_jit_path IS 'The jitted functions that instruction is in, also with the relation; NULL if there is none.';
COMMENT ON COLUMN attributed_peak_values.attributed_source IS 'FILE:LINE of its innermost line of user code, with the relation, or the name of a parameter that a loop carries; without a line of user code, attributed_library_source; NULL if none is known.';
COMMENT ON COLUMN attributed_peak_values.attributed_library_source IS 'The innermost line of library code as "library FILE:LINE" (library_source), with the relation, if the value itself has no line of user code; NULL if none is known.';
COMMENT ON COLUMN attributed_peak_values.attributed_leaf_source IS 'FILE:LINE of its innermost line, library code or not, with the relation; NULL if none is known.';
COMMENT ON COLUMN attributed_peak_values.attributed_own_file IS 'The file in attributed_source; NULL where that is, and for a parameter.';
COMMENT ON COLUMN attributed_peak_values.attributed_own_function IS 'Python function of attributed_source, with the relation; its file if the function is unknown and there is a relation; "library FILE" if attributed_source is library code; NULL if unknown.';
COMMENT ON COLUMN attributed_peak_values.origin_relation IS 'value_origin_details.relation; NULL where origin_kind is.';
COMMENT ON COLUMN attributed_peak_values.origin_stack_frame_id IS 'value_origin_details.stack_frame_id; NULL where origin_kind is.';
COMMENT ON COLUMN attributed_peak_values.origin_source_file IS 'value_origin_details.source_file; NULL where origin_kind is.';
COMMENT ON COLUMN attributed_peak_values.origin_source_line IS 'value_origin_details.source_line; NULL where origin_kind is.';
COMMENT ON COLUMN attributed_peak_values.use_op_name IS 'named_uses.op_name; NULL where use_stack_frame_id is.';
COMMENT ON COLUMN attributed_peak_values.use_stack_frame_id IS 'named_uses.stack_frame_id of what XLA made the value for; NULL for all other values and with unnamed = ''none''.';
COMMENT ON COLUMN attributed_peak_values.use_source_file IS 'named_uses.source_file; NULL where use_stack_frame_id is.';
COMMENT ON COLUMN attributed_peak_values.use_source_line IS 'named_uses.source_line; NULL where use_stack_frame_id is.';
