-- One row per module and memory space whose peak is not 0 or not known, under the name of its function.
CREATE OR REPLACE VIEW module_peaks AS
SELECT
  memory_figures.run_name,
  coalesce(memory_figures.function_name, memory_figures.module_key) AS function_name,
  memory_figures.module_id, memory_figures.module_key, memory_figures.platform,
  memory_figures.color, memory_figures.peak_bytes, memory_figures.need_bytes,
  memory_figures.peak_time, memory_figures.peak_unknown_reason
FROM memory_figures
WHERE memory_figures.peak_bytes <> 0
  OR memory_figures.peak_unknown_reason IS NOT NULL;
COMMENT ON VIEW module_peaks IS
  'One row per module and memory space whose peak is not 0 or not known, under the name of its function. Key: module_id, color.';
COMMENT ON COLUMN module_peaks.function_name IS 'Jitted function: modules.function_name; the module''s key if that is unknown.';
