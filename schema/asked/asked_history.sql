-- The figures of a function over the runs asked for, in order of the time of their dumps.
CREATE OR REPLACE VIEW asked_history AS
WITH figures AS (
  SELECT
    asked_functions.function_name,
    asked_functions.platform,
    asked_functions.color,
    asked_functions.run_name,
    runs.dumped_at,
    asked_functions.module_id,
    asked_functions.module_count,
    asked_functions.unknown_count,
    asked_functions.unknown_reason,
    CASE WHEN asked_functions.unknown_count = 0 THEN asked_functions.peak_bytes END AS peak_bytes,
    asked_functions.temp_bytes,
    asked_functions.argument_bytes,
    asked_functions.output_bytes,
    asked_functions.constant_bytes,
    asked_functions.fragmentation_bytes
  FROM asked_functions
  JOIN runs ON runs.run_name = asked_functions.run_name
),
series AS (
  SELECT
    figures.function_name,
    figures.platform,
    figures.color,
    figures.run_name,
    figures.module_id,
    figures.dumped_at,
    figures.module_count,
    figures.unknown_count,
    figures.unknown_reason,
    figures.peak_bytes,
    figures.temp_bytes,
    figures.argument_bytes,
    figures.output_bytes,
    figures.constant_bytes,
    figures.fragmentation_bytes,
    max(figures.peak_bytes) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS largest_bytes,
    count(figures.unknown_reason) OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
    ) AS unknown_run_count,
    row_number() OVER (
      PARTITION BY figures.function_name, figures.platform, figures.color
      ORDER BY figures.dumped_at NULLS LAST, figures.run_name
    ) AS place
  FROM figures
)
SELECT
  dense_rank() OVER (
    ORDER BY
      CASE WHEN series.unknown_run_count = 0 THEN 1 ELSE 0 END,
      series.largest_bytes DESC NULLS LAST,
      series.function_name,
      series.platform NULLS LAST,
      series.color NULLS LAST
  ) AS series_place,
  series.place,
  series.function_name,
  series.platform,
  series.color,
  series.run_name,
  series.module_id,
  series.dumped_at,
  series.module_count,
  series.unknown_count,
  series.unknown_reason,
  series.peak_bytes,
  series.temp_bytes,
  series.argument_bytes,
  series.output_bytes,
  series.constant_bytes,
  series.fragmentation_bytes
FROM series;
COMMENT ON VIEW asked_history IS
  'Rows of asked_functions as series of runs: a function is followed by name, platform and memory space, from its largest compilation in a run (function_modules) to that in the next, whatever their signatures. diff_pairs, in contrast, pairs all compilations of two runs, those of the same signature first. Key: series_place, place.';
COMMENT ON COLUMN asked_history.series_place IS 'Place of the series: those with an unknown peak first, then the largest peak first.';
COMMENT ON COLUMN asked_history.place IS 'Place of the run in the series, by dumped_at and name.';
COMMENT ON COLUMN asked_history.function_name IS 'function_modules.function_name.';
COMMENT ON COLUMN asked_history.platform IS 'function_modules.platform.';
COMMENT ON COLUMN asked_history.color IS 'function_modules.color.';
COMMENT ON COLUMN asked_history.run_name IS 'function_modules.run_name.';
COMMENT ON COLUMN asked_history.dumped_at IS 'Time of the run''s dumps: runs.dumped_at; NULL if unknown.';
COMMENT ON COLUMN asked_history.module_id IS 'function_modules.module_id.';
COMMENT ON COLUMN asked_history.module_count IS 'function_modules.module_count.';
COMMENT ON COLUMN asked_history.unknown_count IS 'function_modules.unknown_count.';
COMMENT ON COLUMN asked_history.unknown_reason IS 'function_modules.unknown_reason.';
COMMENT ON COLUMN asked_history.peak_bytes IS 'function_modules.peak_bytes; NULL if the peak of any compilation in the run is unknown.';
COMMENT ON COLUMN asked_history.temp_bytes IS 'function_modules.temp_bytes.';
COMMENT ON COLUMN asked_history.argument_bytes IS 'function_modules.argument_bytes.';
COMMENT ON COLUMN asked_history.output_bytes IS 'function_modules.output_bytes.';
COMMENT ON COLUMN asked_history.constant_bytes IS 'function_modules.constant_bytes.';
COMMENT ON COLUMN asked_history.fragmentation_bytes IS 'function_modules.fragmentation_bytes.';
