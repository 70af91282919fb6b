-- One row per module and memory space that the variables select, with its figures.
CREATE OR REPLACE VIEW asked_modules AS
SELECT
  asked_spaces.run_name, asked_spaces.module_id, asked_spaces.module_key, asked_spaces.module_name,
  asked_spaces.function_name, asked_spaces.platform, asked_spaces.color,
  asked_spaces.memory_space_name, asked_spaces.is_device_memory, asked_spaces.argument_bytes,
  asked_spaces.output_bytes, asked_spaces.alias_bytes, asked_spaces.temp_bytes,
  asked_spaces.constant_bytes, asked_spaces.thread_local_bytes, asked_spaces.total_bytes,
  asked_spaces.fixed_bytes, asked_spaces.need_bytes, asked_spaces.occupied_temp_bytes,
  asked_spaces.peak_time, asked_spaces.peak_bytes, asked_spaces.fragmentation_bytes,
  asked_spaces.naive_live_bytes, asked_spaces.peak_unknown_reason,
  asked_spaces.entry_hash, asked_spaces.shapes_name
FROM asked_spaces
WHERE asked_spaces.is_asked;
COMMENT ON VIEW asked_modules IS
  'Rows of asked_spaces in the requested memory space (is_asked): without the variable color, each module once, in the memory of the device. Key: module_id, color.';
