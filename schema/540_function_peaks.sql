-- One row per module and memory space with a known peak above 0, placed among the modules of its
-- function, so that a query can speak of a function by its worst compilation.
CREATE OR REPLACE VIEW function_peaks AS
SELECT
  memory_figures.run_name,
  coalesce(memory_figures.function_name, memory_figures.module_key) AS function_name,
  memory_figures.module_id,
  memory_figures.module_key,
  memory_figures.platform,
  memory_figures.color,
  memory_figures.fixed_bytes,
  memory_figures.peak_bytes,
  memory_figures.peak_time,
  row_number() OVER (
    PARTITION BY
      memory_figures.run_name,
      coalesce(memory_figures.function_name, memory_figures.module_key),
      memory_figures.platform,
      memory_figures.color
    ORDER BY memory_figures.peak_bytes DESC, memory_figures.module_key
  ) AS module_place
FROM memory_figures
WHERE memory_figures.peak_bytes > 0;
COMMENT ON VIEW function_peaks IS
  'One row per module and memory space with a known peak above 0, placed among the modules of its function. Key: module_id, color.';
COMMENT ON COLUMN function_peaks.run_name IS 'The run: modules.run_name.';
COMMENT ON COLUMN function_peaks.function_name IS 'Jitted function: modules.function_name; the module''s key if that is unknown.';
COMMENT ON COLUMN function_peaks.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN function_peaks.module_key IS 'The dump''s path in its run: modules.module_key.';
COMMENT ON COLUMN function_peaks.platform IS 'Backend: modules.platform; NULL if unknown.';
COMMENT ON COLUMN function_peaks.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN function_peaks.fixed_bytes IS 'Bytes held for the whole execution [bytes]: memory_figures.fixed_bytes.';
COMMENT ON COLUMN function_peaks.peak_bytes IS 'The peak [bytes]: memory_figures.peak_bytes.';
COMMENT ON COLUMN function_peaks.peak_time IS 'First instant of the peak [program order]: memory_figures.peak_time.';
COMMENT ON COLUMN function_peaks.module_place IS 'Place of the module among those of the same run, function, platform and memory space, largest peak first, then module_key; from 1.';
