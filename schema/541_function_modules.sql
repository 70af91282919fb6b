-- One row per run, jitted function, platform and memory space: its largest compilation.
CREATE OR REPLACE VIEW function_modules AS
WITH ranked_modules AS (
  SELECT
    memory_figures.*,
    coalesce(memory_figures.function_name, memory_figures.module_key) AS known_name,
    count(*) OVER compilations AS module_count,
    row_number() OVER (
      compilations
      ORDER BY
        memory_figures.peak_bytes DESC NULLS LAST,
        memory_figures.total_bytes DESC,
        memory_figures.module_key
    ) AS place
  FROM memory_figures
  WINDOW compilations AS (
    PARTITION BY
      memory_figures.run_name,
      coalesce(memory_figures.function_name, memory_figures.module_key),
      memory_figures.platform,
      memory_figures.color
  )
)
SELECT
  run_name,
  known_name AS function_name,
  platform,
  color,
  memory_space_name,
  module_id,
  module_key,
  module_count,
  argument_bytes,
  output_bytes,
  alias_bytes,
  temp_bytes,
  constant_bytes,
  thread_local_bytes,
  total_bytes,
  peak_bytes,
  peak_time,
  fragmentation_bytes
FROM ranked_modules
WHERE place = 1;
COMMENT ON VIEW function_modules IS
  'One row per run, jitted function, platform and memory space: the compilation with the largest peak there (without live ranges, the largest total; of equal ones the first module_key), with its figures. What a query shows of a function that was compiled several times. Key: run_name, function_name, platform, color.';
COMMENT ON COLUMN function_modules.run_name IS 'The run: modules.run_name.';
COMMENT ON COLUMN function_modules.function_name IS 'Jitted function: modules.function_name; the module''s key if that is unknown.';
COMMENT ON COLUMN function_modules.platform IS 'Backend: modules.platform; NULL if unknown.';
COMMENT ON COLUMN function_modules.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN function_modules.memory_space_name IS 'Name of the memory space: memory_spaces; NULL if unknown.';
COMMENT ON COLUMN function_modules.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN function_modules.module_key IS 'The dump''s path in its run: modules.module_key.';
COMMENT ON COLUMN function_modules.module_count IS 'Compilations of which this is the largest.';
COMMENT ON COLUMN function_modules.argument_bytes IS 'memory_figures.argument_bytes.';
COMMENT ON COLUMN function_modules.output_bytes IS 'memory_figures.output_bytes.';
COMMENT ON COLUMN function_modules.alias_bytes IS 'memory_figures.alias_bytes.';
COMMENT ON COLUMN function_modules.temp_bytes IS 'memory_figures.temp_bytes.';
COMMENT ON COLUMN function_modules.constant_bytes IS 'memory_figures.constant_bytes.';
COMMENT ON COLUMN function_modules.thread_local_bytes IS 'memory_figures.thread_local_bytes.';
COMMENT ON COLUMN function_modules.total_bytes IS 'memory_figures.total_bytes.';
COMMENT ON COLUMN function_modules.peak_bytes IS 'memory_figures.peak_bytes; NULL without live ranges.';
COMMENT ON COLUMN function_modules.peak_time IS 'memory_figures.peak_time [program order]; NULL without live ranges.';
COMMENT ON COLUMN function_modules.fragmentation_bytes IS 'memory_figures.fragmentation_bytes; NULL without live ranges.';
