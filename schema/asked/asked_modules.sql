-- One row per module and memory space that the variables ask for, with its figures.
CREATE OR REPLACE VIEW asked_modules AS
SELECT
  memory_figures.run_name,
  memory_figures.module_id,
  memory_figures.module_key,
  memory_figures.module_name,
  memory_figures.function_name,
  memory_figures.platform,
  memory_figures.color,
  memory_figures.memory_space_name,
  memory_figures.argument_bytes,
  memory_figures.output_bytes,
  memory_figures.alias_bytes,
  memory_figures.temp_bytes,
  memory_figures.constant_bytes,
  memory_figures.thread_local_bytes,
  memory_figures.total_bytes,
  memory_figures.fixed_bytes,
  memory_figures.need_bytes,
  memory_figures.occupied_temp_bytes,
  memory_figures.peak_time,
  memory_figures.peak_bytes,
  memory_figures.fragmentation_bytes,
  memory_figures.naive_live_bytes,
  memory_figures.peak_unknown_reason
FROM memory_figures
WHERE (
    getvariable('run')::VARCHAR IS NULL
    OR memory_figures.run_name IN (SELECT asked_runs.run_name FROM asked_runs)
  )
  AND (
    getvariable('function')::VARCHAR IS NULL
    OR coalesce(memory_figures.function_name, memory_figures.module_key)
      GLOB getvariable('function')::VARCHAR
  )
  AND (
    getvariable('platform')::VARCHAR IS NULL
    OR memory_figures.platform = getvariable('platform')::VARCHAR
  )
  AND (
    getvariable('color')::BIGINT IS NULL
    OR memory_figures.color IS NULL
    OR memory_figures.color = getvariable('color')::BIGINT
  )
  AND (
    getvariable('module')::VARCHAR IS NULL
    OR memory_figures.module_key GLOB getvariable('module')::VARCHAR
  );
COMMENT ON VIEW asked_modules IS
  'Rows of memory_figures that the variables run (see asked_runs), function (a glob; of a module without a function, of its key), platform, color and module (a glob of module_key) ask for; a variable that is not set leaves all. A module without allocations is in every memory space. Key: module_id, color.';
COMMENT ON COLUMN asked_modules.run_name IS 'memory_figures.run_name.';
COMMENT ON COLUMN asked_modules.module_id IS 'memory_figures.module_id.';
COMMENT ON COLUMN asked_modules.module_key IS 'memory_figures.module_key.';
COMMENT ON COLUMN asked_modules.module_name IS 'memory_figures.module_name.';
COMMENT ON COLUMN asked_modules.function_name IS 'memory_figures.function_name.';
COMMENT ON COLUMN asked_modules.platform IS 'memory_figures.platform.';
COMMENT ON COLUMN asked_modules.color IS 'memory_figures.color.';
COMMENT ON COLUMN asked_modules.memory_space_name IS 'memory_figures.memory_space_name.';
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
