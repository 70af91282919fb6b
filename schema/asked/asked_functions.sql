-- One row per requested run, jitted function, platform and memory space: its largest compilation.
CREATE OR REPLACE VIEW asked_functions AS
WITH ranked_modules AS (
  SELECT
    asked_modules.run_name, asked_modules.module_id, asked_modules.module_key,
    asked_modules.platform, asked_modules.color, asked_modules.memory_space_name,
    asked_modules.is_device_memory, asked_modules.argument_bytes, asked_modules.output_bytes,
    asked_modules.alias_bytes, asked_modules.temp_bytes, asked_modules.constant_bytes,
    asked_modules.thread_local_bytes, asked_modules.total_bytes, asked_modules.need_bytes,
    asked_modules.peak_time, asked_modules.peak_bytes, asked_modules.fragmentation_bytes,
    coalesce(asked_modules.function_name, asked_modules.module_key) AS known_name,
    CASE
      WHEN count(*) OVER same_space = count(asked_modules.need_bytes) OVER same_space
        THEN max(asked_modules.need_bytes) OVER same_space
    END AS max_need_bytes,
    count(*) OVER same_space AS space_count,
    count(asked_modules.peak_unknown_reason) OVER same_space AS space_unknown_count,
    min(asked_modules.peak_unknown_reason) OVER same_space AS space_reason,
    -- The need of a module without allocations is unknown in every memory space.
    CASE
      WHEN asked_modules.color IS NULL THEN 0
      ELSE count(*) FILTER (WHERE asked_modules.color IS NULL) OVER same_function
    END AS bare_count,
    min(asked_modules.peak_unknown_reason) FILTER (WHERE asked_modules.color IS NULL)
      OVER same_function AS bare_reason,
    row_number() OVER (
      same_space
      ORDER BY
        CASE WHEN asked_modules.peak_bytes IS NULL THEN 1 ELSE 0 END,
        asked_modules.need_bytes DESC NULLS LAST,
        asked_modules.peak_bytes DESC NULLS LAST,
        asked_modules.total_bytes DESC,
        asked_modules.module_key
    ) AS place
  FROM asked_modules
  WINDOW
    same_function AS (
      PARTITION BY
        asked_modules.run_name,
        coalesce(asked_modules.function_name, asked_modules.module_key),
        asked_modules.platform
    ),
    same_space AS (
      PARTITION BY
        asked_modules.run_name,
        coalesce(asked_modules.function_name, asked_modules.module_key),
        asked_modules.platform, asked_modules.color
    )
)
SELECT
  run_name,
  known_name AS function_name,
  platform,
  color,
  memory_space_name,
  is_device_memory,
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
  need_bytes,
  max_need_bytes,
  peak_bytes,
  peak_time,
  fragmentation_bytes
FROM ranked_modules
WHERE place = 1;
COMMENT ON VIEW asked_functions IS
  'One row per run, jitted function, platform and memory space of the requested modules (asked_modules; all if no variable is set), with the figures of one compilation: among those with a known peak there, the one with the largest need_bytes (then the largest peak, then the first module_key); if no peak is known, the one with the largest need_bytes. Queries show this compilation of a function that was compiled several times. Where unknown_count is above 0, another compilation may be larger. Key: run_name, function_name, platform, color.';
COMMENT ON COLUMN asked_functions.run_name IS 'The run: modules.run_name.';
COMMENT ON COLUMN asked_functions.function_name IS 'Jitted function: modules.function_name; the module''s key if that is unknown.';
COMMENT ON COLUMN asked_functions.platform IS 'Backend: modules.platform; NULL if unknown.';
COMMENT ON COLUMN asked_functions.color IS 'Memory space: allocations.color; NULL for modules without allocations.';
COMMENT ON COLUMN asked_functions.memory_space_name IS 'Name of the memory space: memory_spaces; NULL if unknown.';
COMMENT ON COLUMN asked_functions.is_device_memory IS 'memory_figures.is_device_memory of that compilation.';
COMMENT ON COLUMN asked_functions.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN asked_functions.module_key IS 'The dump''s path in its run: modules.module_key.';
COMMENT ON COLUMN asked_functions.module_count IS 'Compilations with an allocation in the memory space, or without any allocation.';
COMMENT ON COLUMN asked_functions.unknown_count IS 'Those of them with an unknown peak.';
COMMENT ON COLUMN asked_functions.unknown_reason IS 'Why: memory_figures.peak_unknown_reason, for several compilations their number and one reason; NULL if all peaks are known.';
COMMENT ON COLUMN asked_functions.argument_bytes IS 'memory_figures.argument_bytes.';
COMMENT ON COLUMN asked_functions.output_bytes IS 'memory_figures.output_bytes.';
COMMENT ON COLUMN asked_functions.alias_bytes IS 'memory_figures.alias_bytes.';
COMMENT ON COLUMN asked_functions.temp_bytes IS 'memory_figures.temp_bytes.';
COMMENT ON COLUMN asked_functions.constant_bytes IS 'memory_figures.constant_bytes.';
COMMENT ON COLUMN asked_functions.thread_local_bytes IS 'memory_figures.thread_local_bytes.';
COMMENT ON COLUMN asked_functions.total_bytes IS 'memory_figures.total_bytes.';
COMMENT ON COLUMN asked_functions.need_bytes IS 'memory_figures.need_bytes.';
COMMENT ON COLUMN asked_functions.max_need_bytes IS 'Largest need_bytes of all compilations there, including those with an unknown peak; NULL if one need_bytes is unknown.';
COMMENT ON COLUMN asked_functions.peak_bytes IS 'memory_figures.peak_bytes; NULL if no peak is known.';
COMMENT ON COLUMN asked_functions.peak_time IS 'memory_figures.peak_time [program order]; NULL if no peak is known.';
COMMENT ON COLUMN asked_functions.fragmentation_bytes IS 'memory_figures.fragmentation_bytes; NULL if no peak is known.';
