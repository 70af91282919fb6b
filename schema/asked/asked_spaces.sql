-- One row per module that the variables select and memory space, requested or not.
CREATE OR REPLACE VIEW asked_spaces AS
SELECT
  memory_figures.run_name, memory_figures.module_id, memory_figures.module_key,
  memory_figures.module_name, memory_figures.function_name, memory_figures.platform,
  memory_figures.color, memory_figures.memory_space_name, memory_figures.is_device_memory,
  memory_figures.color IS NULL
    OR (getvariable('color')::VARCHAR IS NULL AND memory_figures.is_device_memory)
    OR coalesce(
      getvariable('color')::VARCHAR IN ('all', CAST(memory_figures.color AS VARCHAR)), FALSE
    ) AS is_asked,
  memory_figures.argument_bytes, memory_figures.output_bytes, memory_figures.alias_bytes,
  memory_figures.temp_bytes, memory_figures.constant_bytes, memory_figures.thread_local_bytes,
  memory_figures.total_bytes, memory_figures.fixed_bytes, memory_figures.need_bytes,
  memory_figures.occupied_temp_bytes, memory_figures.peak_time, memory_figures.peak_bytes,
  memory_figures.fragmentation_bytes, memory_figures.naive_live_bytes,
  memory_figures.peak_unknown_reason, memory_figures.entry_hash, memory_figures.shapes_name
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
    getvariable('module')::VARCHAR IS NULL
    OR memory_figures.module_key GLOB getvariable('module')::VARCHAR
  );
COMMENT ON VIEW asked_spaces IS
  'Rows of memory_figures for the modules that the variables run (see asked_runs), function (a glob; for a module without a function, matched against its key), platform and module (a glob of module_key) select, in every memory space; a variable that is not set selects all. Key: module_id, color.';
COMMENT ON COLUMN asked_spaces.is_asked IS 'Whether the variable color selects the memory space: its number, or all; if it is not set, the memory of the device (is_device_memory). A module without allocations is in every memory space.';
