-- One row per requested module and memory space with a peak, known or not.
CREATE OR REPLACE VIEW asked_peaks AS
SELECT
  asked_modules.run_name,
  coalesce(asked_modules.function_name, asked_modules.module_key) AS function_name,
  asked_modules.module_id, asked_modules.module_key, asked_modules.platform, asked_modules.color,
  asked_modules.peak_bytes, asked_modules.need_bytes, asked_modules.peak_time,
  asked_modules.peak_unknown_reason
FROM asked_modules
WHERE asked_modules.peak_bytes <> 0
  OR asked_modules.peak_unknown_reason IS NOT NULL;
COMMENT ON VIEW asked_peaks IS
  'Rows of module_peaks for the requested modules and memory spaces (asked_modules). Key: module_id, color.';
COMMENT ON COLUMN asked_peaks.function_name IS 'module_peaks.function_name.';
