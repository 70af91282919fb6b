-- The peaks of the requested functions as answers show them: what is held, and which are unknown.
CREATE OR REPLACE VIEW answered_peak_values AS
SELECT
  answered_instants.place AS function_place, answered_instants.name_place,
  answered_instants.run_name, answered_instants.function_name, answered_instants.platform,
  answered_instants.color, answered_instants.peak_bytes, answered_instants.unknown_reason,
  answered_instants.module_id, held.allocation_index, held.allocation_kind, held.value_id,
  held.held_bytes, value_details.shape, value_details.bare_shape, value_details.dtype,
  value_details.instruction_name, value_details.opcode, value_details.op_name,
  value_details.op_path, value_details.stripped_op_path, value_details.jit_path,
  value_details.source_file, value_details.source_line, value_details.own_source_file,
  value_details.own_source_line, value_details.own_source, value_details.library_source,
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
  'One row per value that holds bytes at the peak of a requested function (answered_instants), or at the instant selected instead (asked_peak_values), with its details; and one row per function with an unknown peak, with unknown_reason, in which the columns of the value are NULL. Key: function_place, name_place, allocation_index, value_id.';
COMMENT ON COLUMN answered_peak_values.function_place IS 'answered_instants.place: 0 for an unknown peak.';
