-- One row per module and memory space that the variables ask for, with its figures.
CREATE OR REPLACE VIEW asked_modules AS
SELECT
  asked_spaces.run_name,
  asked_spaces.module_id,
  asked_spaces.module_key,
  asked_spaces.module_name,
  asked_spaces.function_name,
  asked_spaces.platform,
  asked_spaces.color,
  asked_spaces.memory_space_name,
  asked_spaces.is_device_memory,
  asked_spaces.argument_bytes,
  asked_spaces.output_bytes,
  asked_spaces.alias_bytes,
  asked_spaces.temp_bytes,
  asked_spaces.constant_bytes,
  asked_spaces.thread_local_bytes,
  asked_spaces.total_bytes,
  asked_spaces.fixed_bytes,
  asked_spaces.need_bytes,
  asked_spaces.occupied_temp_bytes,
  asked_spaces.peak_time,
  asked_spaces.peak_bytes,
  asked_spaces.fragmentation_bytes,
  asked_spaces.naive_live_bytes,
  asked_spaces.peak_unknown_reason
FROM asked_spaces
WHERE asked_spaces.is_asked;
COMMENT ON VIEW asked_modules IS
  'Rows of asked_spaces in the memory space that is asked for (is_asked): without the variable color each module once, in the memory of the device. Key: module_id, color.';
COMMENT ON COLUMN asked_modules.run_name IS 'memory_figures.run_name.';
COMMENT ON COLUMN asked_modules.module_id IS 'memory_figures.module_id.';
COMMENT ON COLUMN asked_modules.module_key IS 'memory_figures.module_key.';
COMMENT ON COLUMN asked_modules.module_name IS 'memory_figures.module_name.';
COMMENT ON COLUMN asked_modules.function_name IS 'memory_figures.function_name.';
COMMENT ON COLUMN asked_modules.platform IS 'memory_figures.platform.';
COMMENT ON COLUMN asked_modules.color IS 'memory_figures.color.';
COMMENT ON COLUMN asked_modules.memory_space_name IS 'memory_figures.memory_space_name.';
COMMENT ON COLUMN asked_modules.is_device_memory IS 'memory_figures.is_device_memory.';
COMMENT ON COLUMN asked_modules.argument_bytes IS 'memory_figures.argument_bytes.';
COMMENT ON COLUMN asked_modules.output_bytes IS 'memory_figures.output_bytes.';
COMMENT ON COLUMN asked_modules.alias_bytes IS 'memory_figures.alias_bytes.';
COMMENT ON COLUMN asked_modules.temp_bytes IS 'memory_figures.temp_bytes.';
COMMENT ON COLUMN asked_modules.constant_bytes IS 'memory_figures.constant_bytes.';
COMMENT ON COLUMN asked_modules.thread_local_bytes IS 'memory_figures.thread_local_bytes.';
COMMENT ON COLUMN asked_modules.total_bytes IS 'memory_figures.total_bytes.';
COMMENT ON COLUMN asked_modules.fixed_bytes IS 'memory_figures.fixed_bytes.';
COMMENT ON COLUMN asked_modules.need_bytes IS 'memory_figures.need_bytes.';
COMMENT ON COLUMN asked_modules.occupied_temp_bytes IS 'memory_figures.occupied_temp_bytes.';
COMMENT ON COLUMN asked_modules.peak_time IS 'memory_figures.peak_time.';
COMMENT ON COLUMN asked_modules.peak_bytes IS 'memory_figures.peak_bytes.';
COMMENT ON COLUMN asked_modules.fragmentation_bytes IS 'memory_figures.fragmentation_bytes.';
COMMENT ON COLUMN asked_modules.naive_live_bytes IS 'memory_figures.naive_live_bytes.';
COMMENT ON COLUMN asked_modules.peak_unknown_reason IS 'memory_figures.peak_unknown_reason.';
