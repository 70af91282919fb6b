-- One row per value with its module, allocation, shape, instruction, source and live range.
CREATE OR REPLACE VIEW value_details AS
WITH described AS (
  -- Each pattern is matched once: an alias is its text again, wherever it is used.
  SELECT
    modules.run_name, "values".module_id, modules.module_key, modules.module_name,
    modules.function_name, modules.platform, "values".value_id, "values".instruction_name,
    "values".shape_index, "values".is_phi, "values".shape, shapes.dtype, shapes.dimensions_text,
    shapes.layout, shapes.is_tuple, shapes.element_count, "values".size_bytes,
    "values".logical_bytes, "values".allocation_index, allocations.kind AS allocation_kind,
    allocations.size_bytes AS allocation_size_bytes, allocations.parameter_number,
    "values".offset_bytes,
    coalesce(allocations.color, "values".color) AS color,
    memory_spaces.memory_space_name, instructions.program_order, instructions.opcode,
    instructions.op_type, instructions.op_name,
    op_path(instructions.op_name) AS op_path,
    instructions.source_file, instructions.source_line, instructions.stack_frame_id,
    instructions.stack_frame_id IS NOT NULL AND stack_frames.stack_frame_id IS NOT NULL
      AS is_framed,
    own_frames.source_file AS frame_file, own_frames.source_line AS frame_line,
    is_library_path(instructions.source_file, modules.own_pattern) AS is_library,
    live_ranges.start_time, live_ranges.end_time
  FROM "values"
  JOIN modules ON modules.module_id = "values".module_id
  LEFT JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  LEFT JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN memory_spaces
    ON memory_spaces.platform = modules.platform
    AND memory_spaces.color = coalesce(allocations.color, "values".color)
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN stack_frames
    ON stack_frames.module_id = instructions.module_id
    AND stack_frames.stack_frame_id = instructions.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
  LEFT JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
)
SELECT
  described.run_name, described.module_id, described.module_key, described.module_name,
  described.function_name, described.platform, described.value_id, described.instruction_name,
  described.shape_index, described.is_phi, described.shape, described.dtype,
  described.dimensions_text, described.layout,
  coalesce(described.dtype || '[' || described.dimensions_text || ']', described.shape)
    AS bare_shape,
  coalesce(described.is_tuple, FALSE) AS is_tuple,
  described.size_bytes, described.logical_bytes,
  greatest(described.size_bytes::HUGEINT - described.logical_bytes, 0) AS padding_bytes,
  CASE
    WHEN contains(described.layout, 'T(')
      THEN coalesce(
        described.size_bytes::HUGEINT * described.element_count
          <= described.logical_bytes::HUGEINT * tile_element_count(described.layout),
        FALSE
      )
    ELSE TRUE
  END AS is_least_size,
  described.allocation_index, described.allocation_kind, described.allocation_size_bytes,
  described.parameter_number, described.offset_bytes,
  described.offset_bytes::HUGEINT + described.size_bytes AS end_bytes,
  described.color, described.memory_space_name, described.program_order, described.opcode,
  described.op_type, described.op_name, described.op_path,
  strip_op_path(described.op_path) AS stripped_op_path,
  jit_names(described.op_path) AS jit_path,
  described.source_file, described.source_line, described.stack_frame_id,
  CASE
    WHEN described.is_framed THEN described.frame_file
    WHEN NOT described.is_library THEN described.source_file
  END AS own_source_file,
  CASE
    WHEN described.is_framed THEN described.frame_line
    WHEN NOT described.is_library THEN described.source_line
  END AS own_source_line,
  own_source_file || ':' || own_source_line AS own_source,
  CASE
    WHEN own_source_file IS NULL AND described.is_library
      THEN library_name(described.source_file, described.source_line)
  END AS library_source,
  described.start_time, described.end_time
FROM described;
COMMENT ON VIEW value_details IS
  'One row per value with its module, allocation, shape, instruction, source and live range. Key: module_id, value_id.';
COMMENT ON COLUMN value_details.bare_shape IS 'Shape without layout; that with layout for a tuple or if it was not understood.';
COMMENT ON COLUMN value_details.is_tuple IS 'Whether the value is a tuple''s table of pointers: shapes.is_tuple.';
COMMENT ON COLUMN value_details.padding_bytes IS 'size_bytes minus logical_bytes [bytes]; 0 where that is negative, as for TPU pointer tables with fewer than 8 bytes per element; NULL if logical_bytes is unknown.';
COMMENT ON COLUMN value_details.is_least_size IS 'Whether no other dimensions would reduce the padding: it takes at most one tile of its layout, or the layout has no tiles and the padding is alignment.';
COMMENT ON COLUMN value_details.allocation_kind IS 'Role of the allocation: allocations.kind; NULL in an out-of-memory message.';
COMMENT ON COLUMN value_details.allocation_size_bytes IS 'Size of the whole allocation [bytes]: allocations.size_bytes; NULL in an out-of-memory message.';
COMMENT ON COLUMN value_details.end_bytes IS 'First byte after the value in the allocation [bytes]: offset_bytes plus size_bytes, in 128 bits; NULL in an out-of-memory message.';
COMMENT ON COLUMN value_details.color IS 'Memory space of the allocation: allocations.color, else values.color.';
COMMENT ON COLUMN value_details.memory_space_name IS 'Name of the memory space: memory_spaces; NULL if unknown.';
COMMENT ON COLUMN value_details.op_path IS 'Scope path, normalized: macro op_path of op_name; NULL where that is.';
COMMENT ON COLUMN value_details.stripped_op_path IS 'The same without the elements that JAX adds: macro strip_op_path; NULL where op_name is.';
COMMENT ON COLUMN value_details.jit_path IS 'Jitted functions it is in, outermost first: macro jit_path of op_name; NULL if there is none.';
COMMENT ON COLUMN value_details.own_source_file IS 'Innermost source file that is not library code (is_library_path); NULL if there is none or it is unknown.';
COMMENT ON COLUMN value_details.own_source_line IS 'Line in own_source_file; NULL where that is.';
COMMENT ON COLUMN value_details.own_source IS 'own_source_file and own_source_line as FILE:LINE; NULL where they are.';
COMMENT ON COLUMN value_details.library_source IS 'Where no line of user code is known, the innermost line as "library FILE:LINE" (macro library_source); NULL if there is one, or no line at all.';
COMMENT ON COLUMN value_details.start_time IS 'First live instant [program order]: live_ranges.start_time; NULL without a live range.';
COMMENT ON COLUMN value_details.end_time IS 'Last live instant, inclusive [program order]: live_ranges.end_time; NULL without a live range.';
