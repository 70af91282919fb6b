-- The peaks of the functions asked for, for an answer: what is held, and which are unknown.
CREATE OR REPLACE VIEW answered_peak_values AS
SELECT
  answered_instants.place AS function_place,
  answered_instants.name_place,
  answered_instants.run_name,
  answered_instants.function_name,
  answered_instants.platform,
  answered_instants.color,
  answered_instants.peak_bytes,
  answered_instants.unknown_reason,
  answered_instants.module_id,
  held.allocation_index,
  held.allocation_kind,
  held.value_id,
  held.held_bytes,
  value_details.shape,
  value_details.bare_shape,
  value_details.dtype,
  value_details.instruction_name,
  value_details.opcode,
  value_details.op_name,
  value_details.op_path,
  value_details.stripped_op_path,
  value_details.jit_path,
  value_details.source_file,
  value_details.source_line,
  value_details.own_source_file,
  value_details.own_source_line,
  value_details.own_source,
  value_details.library_source,
  value_details.stack_frame_id
FROM answered_instants
LEFT JOIN asked_peak_values AS held
  ON held.module_id = answered_instants.module_id
  AND held.color = answered_instants.color
LEFT JOIN value_details
  ON value_details.module_id = held.module_id
  AND value_details.value_id = held.value_id
WHERE answered_instants.unknown_reason IS NOT NULL
  OR (answered_instants.place > 0 AND held.module_id IS NOT NULL);
COMMENT ON VIEW answered_peak_values IS
  'One row per value that holds bytes at the peak of a function asked for (answered_instants), or at the instant asked for instead (asked_peak_values), with all that explains it, and one with nothing else per function of which that is unknown. Key: function_place, name_place, allocation_index, value_id.';
COMMENT ON COLUMN answered_peak_values.function_place IS 'answered_instants.place: 0 for an unknown peak.';
COMMENT ON COLUMN answered_peak_values.allocation_index IS 'asked_peak_values.allocation_index; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.allocation_kind IS 'asked_peak_values.allocation_kind; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.value_id IS 'asked_peak_values.value_id; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.held_bytes IS 'asked_peak_values.held_bytes; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.shape IS 'value_details.shape; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.bare_shape IS 'value_details.bare_shape; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.dtype IS 'value_details.dtype; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.instruction_name IS 'value_details.instruction_name; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.opcode IS 'value_details.opcode; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.op_name IS 'value_details.op_name; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.op_path IS 'value_details.op_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.stripped_op_path IS 'value_details.stripped_op_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.jit_path IS 'value_details.jit_path; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.source_file IS 'value_details.source_file; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.source_line IS 'value_details.source_line; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source_file IS 'value_details.own_source_file; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source_line IS 'value_details.own_source_line; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.own_source IS 'value_details.own_source; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.library_source IS 'value_details.library_source; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_peak_values.stack_frame_id IS 'value_details.stack_frame_id; NULL in a row with unknown_reason.';
