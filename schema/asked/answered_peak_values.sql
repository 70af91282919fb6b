-- The peaks of the functions asked for, for an answer: what is held, and which are unknown.
CREATE OR REPLACE VIEW answered_peak_values AS
SELECT
  answered_functions.place AS function_place,
  answered_functions.name_place,
  answered_functions.run_name,
  answered_functions.function_name,
  answered_functions.platform,
  answered_functions.color,
  answered_functions.peak_bytes,
  answered_functions.unknown_reason,
  answered_functions.module_id,
  peak_value_details.allocation_index,
  peak_value_details.allocation_kind,
  peak_value_details.value_id,
  peak_value_details.held_bytes,
  peak_value_details.shape,
  peak_value_details.bare_shape,
  peak_value_details.dtype,
  peak_value_details.instruction_name,
  peak_value_details.opcode,
  peak_value_details.op_name,
  peak_value_details.op_path,
  peak_value_details.stripped_op_path,
  peak_value_details.jit_path,
  peak_value_details.source_file,
  peak_value_details.source_line,
  peak_value_details.own_source_file,
  peak_value_details.own_source_line,
  peak_value_details.own_source,
  peak_value_details.stack_frame_id
FROM answered_functions
LEFT JOIN peak_value_details
  ON peak_value_details.module_id = answered_functions.module_id
  AND peak_value_details.color = answered_functions.color
WHERE answered_functions.unknown_reason IS NOT NULL
  OR (answered_functions.place > 0 AND peak_value_details.module_id IS NOT NULL);
COMMENT ON VIEW answered_peak_values IS
  'One row per value that holds bytes at the peak of a function asked for (answered_functions), as in peak_value_details, and one with nothing else per function of which a peak is unknown. Key: function_place, name_place, allocation_index, value_id.';
COMMENT ON COLUMN answered_peak_values.function_place IS 'answered_functions.place: 0 for an unknown peak.';
COMMENT ON COLUMN answered_peak_values.name_place IS 'answered_functions.name_place.';
COMMENT ON COLUMN answered_peak_values.run_name IS 'answered_functions.run_name.';
COMMENT ON COLUMN answered_peak_values.function_name IS 'answered_functions.function_name.';
COMMENT ON COLUMN answered_peak_values.platform IS 'answered_functions.platform.';
COMMENT ON COLUMN answered_peak_values.color IS 'answered_functions.color.';
COMMENT ON COLUMN answered_peak_values.peak_bytes IS 'answered_functions.peak_bytes.';
COMMENT ON COLUMN answered_peak_values.unknown_reason IS 'answered_functions.unknown_reason.';
COMMENT ON COLUMN answered_peak_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN answered_peak_values.allocation_index IS 'peak_value_details.allocation_index; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.allocation_kind IS 'peak_value_details.allocation_kind; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.value_id IS 'peak_value_details.value_id; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.held_bytes IS 'peak_value_details.held_bytes; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.shape IS 'peak_value_details.shape; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.bare_shape IS 'peak_value_details.bare_shape; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.dtype IS 'peak_value_details.dtype; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.instruction_name IS 'peak_value_details.instruction_name; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.opcode IS 'peak_value_details.opcode; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.op_name IS 'peak_value_details.op_name; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.op_path IS 'peak_value_details.op_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.stripped_op_path IS 'peak_value_details.stripped_op_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.jit_path IS 'peak_value_details.jit_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.source_file IS 'peak_value_details.source_file; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.source_line IS 'peak_value_details.source_line; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source_file IS 'peak_value_details.own_source_file; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source_line IS 'peak_value_details.own_source_line; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source IS 'peak_value_details.own_source; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.stack_frame_id IS 'peak_value_details.stack_frame_id; NULL in a row with unknown_reason.';
