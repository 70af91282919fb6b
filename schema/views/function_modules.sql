-- One row per run, jitted function, platform and memory space: its largest compilation.
CREATE OR REPLACE VIEW function_modules AS
WITH compilations AS (
  SELECT
    memory_figures.*,
    coalesce(memory_figures.function_name, memory_figures.module_key) AS known_name
  FROM memory_figures
),
ranked_modules AS (
  SELECT
    compilations.*,
    count(*) OVER same_space AS space_count,
    count(compilations.peak_unknown_reason) OVER same_space AS space_unknown_count,
    min(compilations.peak_unknown_reason) OVER same_space AS space_reason,
    -- What a module without allocations needs is unknown in every memory space.
    CASE
      WHEN compilations.color IS NULL THEN 0
      ELSE count(*) FILTER (WHERE compilations.color IS NULL) OVER same_function
    END AS bare_count,
    min(compilations.peak_unknown_reason) FILTER (WHERE compilations.color IS NULL)
      OVER same_function AS bare_reason,
    row_number() OVER (
      same_space
      ORDER BY
        compilations.peak_bytes DESC NULLS LAST,
        compilations.total_bytes DESC,
        compilations.module_key
    ) AS place
  FROM compilations
  WINDOW
    same_function AS (
      PARTITION BY compilations.run_name, compilations.known_name, compilations.platform
    ),
    same_space AS (
      PARTITION BY
        compilations.run_name, compilations.known_name, compilations.platform, compilations.color
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
  space_count + bare_count AS module_count,
  space_unknown_count + bare_count AS unknown_count,
  CASE
    WHEN space_unknown_count + bare_count = 0 THEN NULL
    WHEN space_count + bare_count = 1 THEN space_reason
    ELSE 'the peak of ' || (space_unknown_count + bare_count) || ' of '
      || (space_count + bare_count) || ' compilations is unknown: '
      || coalesce(space_reason, bare_reason)
  END AS unknown_reason,
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
  'One row per run, jitted function, platform and memory space: the compilation with the largest known peak there (if none is known, the largest total; of equal ones the first module_key), with its figures. What a query shows of a function that was compiled several times. Where unknown_count is more than 0, another compilation may have a larger peak. Key: run_name, function_name, platform, color.';
COMMENT ON COLUMN function_modules.run_name IS 'The run: modules.run_name.';
COMMENT ON COLUMN function_modules.function_name IS 'Jitted function: modules.function_name; the module''s key if that is unknown.';
COMMENT ON COLUMN function_modules.platform IS 'Backend: modules.platform; NULL if unknown.';
COMMENT ON COLUMN function_modules.color IS 'Memory space: allocations.color; NULL for modules without allocations.';
COMMENT ON COLUMN function_modules.memory_space_name IS 'Name of the memory space: memory_spaces; NULL if unknown.';
COMMENT ON COLUMN function_modules.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN function_modules.module_key IS 'The dump''s path in its run: modules.module_key.';
COMMENT ON COLUMN function_modules.module_count IS 'Compilations that have an allocation in the memory space or none at all.';
COMMENT ON COLUMN function_modules.unknown_count IS 'Those of them whose peak is unknown.';
COMMENT ON COLUMN function_modules.unknown_reason IS 'Why: memory_figures.peak_unknown_reason, of several compilations with their number and one reason; NULL if all peaks are known.';
COMMENT ON COLUMN function_modules.argument_bytes IS 'memory_figures.argument_bytes.';
COMMENT ON COLUMN function_modules.output_bytes IS 'memory_figures.output_bytes.';
COMMENT ON COLUMN function_modules.alias_bytes IS 'memory_figures.alias_bytes.';
COMMENT ON COLUMN function_modules.temp_bytes IS 'memory_figures.temp_bytes.';
COMMENT ON COLUMN function_modules.constant_bytes IS 'memory_figures.constant_bytes.';
COMMENT ON COLUMN function_modules.thread_local_bytes IS 'memory_figures.thread_local_bytes.';
COMMENT ON COLUMN function_modules.total_bytes IS 'memory_figures.total_bytes.';
COMMENT ON COLUMN function_modules.peak_bytes IS 'memory_figures.peak_bytes; NULL if no peak is known.';
COMMENT ON COLUMN function_modules.peak_time IS 'memory_figures.peak_time [program order]; NULL if no peak is known.';
COMMENT ON COLUMN function_modules.fragmentation_bytes IS 'memory_figures.fragmentation_bytes; NULL if no peak is known.';
