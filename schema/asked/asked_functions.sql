-- One row per run, jitted function, platform and memory space that the variables ask for.
CREATE OR REPLACE VIEW asked_functions AS
SELECT
  function_modules.run_name,
  function_modules.function_name,
  function_modules.platform,
  function_modules.color,
  function_modules.module_id,
  function_modules.module_count,
  function_modules.unknown_count,
  function_modules.unknown_reason,
  function_modules.argument_bytes,
  function_modules.output_bytes,
  function_modules.alias_bytes,
  function_modules.temp_bytes,
  function_modules.constant_bytes,
  function_modules.thread_local_bytes,
  function_modules.total_bytes,
  function_modules.peak_bytes,
  function_modules.peak_time,
  function_modules.fragmentation_bytes
FROM function_modules
WHERE (
    getvariable('run')::VARCHAR IS NULL
    OR function_modules.run_name IN (SELECT asked_runs.run_name FROM asked_runs)
  )
  AND (
    getvariable('function')::VARCHAR IS NULL
    OR function_modules.function_name GLOB getvariable('function')::VARCHAR
  )
  AND (
    getvariable('platform')::VARCHAR IS NULL
    OR function_modules.platform = getvariable('platform')::VARCHAR
  )
  AND (
    getvariable('color')::BIGINT IS NULL
    OR function_modules.color IS NULL
    OR function_modules.color = getvariable('color')::BIGINT
  );
COMMENT ON VIEW asked_functions IS
  'Rows of function_modules that the variables run (see asked_runs), function (a glob), platform and color ask for; a variable that is not set leaves all. A module without allocations is in every memory space. Key: run_name, function_name, platform, color.';
COMMENT ON COLUMN asked_functions.run_name IS 'function_modules.run_name.';
COMMENT ON COLUMN asked_functions.function_name IS 'function_modules.function_name.';
COMMENT ON COLUMN asked_functions.platform IS 'function_modules.platform.';
COMMENT ON COLUMN asked_functions.color IS 'function_modules.color.';
COMMENT ON COLUMN asked_functions.module_id IS 'function_modules.module_id.';
COMMENT ON COLUMN asked_functions.module_count IS 'function_modules.module_count.';
COMMENT ON COLUMN asked_functions.unknown_count IS 'function_modules.unknown_count.';
COMMENT ON COLUMN asked_functions.unknown_reason IS 'function_modules.unknown_reason.';
COMMENT ON COLUMN asked_functions.argument_bytes IS 'function_modules.argument_bytes.';
COMMENT ON COLUMN asked_functions.output_bytes IS 'function_modules.output_bytes.';
COMMENT ON COLUMN asked_functions.alias_bytes IS 'function_modules.alias_bytes.';
COMMENT ON COLUMN asked_functions.temp_bytes IS 'function_modules.temp_bytes.';
COMMENT ON COLUMN asked_functions.constant_bytes IS 'function_modules.constant_bytes.';
COMMENT ON COLUMN asked_functions.thread_local_bytes IS 'function_modules.thread_local_bytes.';
COMMENT ON COLUMN asked_functions.total_bytes IS 'function_modules.total_bytes.';
COMMENT ON COLUMN asked_functions.peak_bytes IS 'function_modules.peak_bytes.';
COMMENT ON COLUMN asked_functions.peak_time IS 'function_modules.peak_time.';
COMMENT ON COLUMN asked_functions.fragmentation_bytes IS 'function_modules.fragmentation_bytes.';
