-- One row per module and memory space with a peak, or an unknown one, that the variables ask for.
CREATE OR REPLACE VIEW asked_peaks AS
SELECT
  module_peaks.run_name,
  module_peaks.function_name,
  module_peaks.module_id,
  module_peaks.module_key,
  module_peaks.platform,
  module_peaks.color,
  module_peaks.peak_bytes,
  module_peaks.peak_time,
  module_peaks.peak_unknown_reason
FROM module_peaks
WHERE (
    getvariable('run')::VARCHAR IS NULL
    OR module_peaks.run_name IN (SELECT asked_runs.run_name FROM asked_runs)
  )
  AND (
    getvariable('function')::VARCHAR IS NULL
    OR coalesce(module_peaks.function_name, module_peaks.module_key)
      GLOB getvariable('function')::VARCHAR
  )
  AND (
    getvariable('platform')::VARCHAR IS NULL
    OR module_peaks.platform = getvariable('platform')::VARCHAR
  )
  AND (
    getvariable('color')::BIGINT IS NULL
    OR module_peaks.color IS NULL
    OR module_peaks.color = getvariable('color')::BIGINT
  )
  AND (
    getvariable('module')::VARCHAR IS NULL
    OR module_peaks.module_key GLOB getvariable('module')::VARCHAR
  );
COMMENT ON VIEW asked_peaks IS
  'Rows of module_peaks that the variables run (see asked_runs), function (a glob; of a module without a function, of its key), platform, color and module (a glob of module_key) ask for; a variable that is not set leaves all. Key: module_id, color.';
COMMENT ON COLUMN asked_peaks.run_name IS 'module_peaks.run_name.';
COMMENT ON COLUMN asked_peaks.function_name IS 'module_peaks.function_name.';
COMMENT ON COLUMN asked_peaks.module_id IS 'module_peaks.module_id.';
COMMENT ON COLUMN asked_peaks.module_key IS 'module_peaks.module_key.';
COMMENT ON COLUMN asked_peaks.platform IS 'module_peaks.platform.';
COMMENT ON COLUMN asked_peaks.color IS 'module_peaks.color.';
COMMENT ON COLUMN asked_peaks.peak_bytes IS 'module_peaks.peak_bytes.';
COMMENT ON COLUMN asked_peaks.peak_time IS 'module_peaks.peak_time.';
COMMENT ON COLUMN asked_peaks.peak_unknown_reason IS 'module_peaks.peak_unknown_reason.';
