-- One row per value that holds bytes at the peak, with its details: peak_values joined with
-- value_details. Bytes without a value in the dump keep their row, with NULLs.
CREATE OR REPLACE VIEW peak_value_details AS
SELECT
  peak_values.module_id, peak_values.color, peak_values.allocation_index,
  peak_values.allocation_kind, peak_values.value_id, peak_values.held_bytes, value_details.shape,
  value_details.dtype, value_details.dimensions_text, value_details.layout,
  value_details.bare_shape, value_details.instruction_name, value_details.opcode,
  value_details.op_name, value_details.op_path, value_details.stripped_op_path,
  value_details.jit_path, value_details.source_file, value_details.source_line, value_details.own_source_file,
  value_details.own_source_line, value_details.own_source, value_details.library_source,
  value_details.stack_frame_id, value_details.start_time, value_details.end_time
FROM peak_values
LEFT JOIN value_details
  ON value_details.module_id = peak_values.module_id
  AND value_details.value_id = peak_values.value_id;
COMMENT ON VIEW peak_value_details IS
  'One row per value that holds bytes at the peak, with its details; held_bytes of a module and color add up to memory_figures.peak_bytes. Key: module_id, allocation_index, value_id.';
COMMENT ON COLUMN peak_value_details.value_id IS 'The value, or the one that represents the allocation: peak_values.value_id; NULL if the dump lists none. The columns of value_details are NULL then.';
COMMENT ON COLUMN peak_value_details.op_path IS 'Its scope path, normalized: macro op_path of op_name; NULL where that is.';
COMMENT ON COLUMN peak_value_details.stripped_op_path IS 'The same without the elements that JAX adds: macro strip_op_path; NULL where op_name is.';
COMMENT ON COLUMN peak_value_details.jit_path IS 'Jitted functions it is in, outermost first: macro jit_path of op_name; NULL if there is none.';
