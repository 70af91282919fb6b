-- The figures of a function over the runs asked for, in order of the time of their dumps.
CREATE OR REPLACE VIEW asked_history AS
WITH figures AS (
  SELECT
    asked_functions.function_name,
    asked_functions.platform,
    asked_functions.color,
    asked_functions.run_name,
    runs.dumped_at,
    module_signatures.entry_signature,
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
  JOIN module_signatures ON module_signatures.module_id = asked_functions.module_id
),
series AS (
  SELECT
    function_name,
    platform,
    color,
    row_number() OVER (
      ORDER BY
        CASE WHEN count(unknown_reason) = 0 THEN 1 ELSE 0 END,
        max(peak_bytes) DESC NULLS LAST,
        function_name,
        platform NULLS LAST,
        color NULLS LAST
    ) AS series_place
  FROM figures
  GROUP BY function_name, platform, color
)
SELECT
  series.series_place,
  row_number() OVER (
    PARTITION BY series.series_place
    ORDER BY figures.dumped_at NULLS LAST, figures.run_name
  ) AS place,
  figures.function_name,
  figures.platform,
  figures.color,
  figures.run_name,
  figures.dumped_at,
  figures.entry_signature,
  figures.module_count,
  figures.unknown_count,
  figures.unknown_reason,
  figures.peak_bytes,
  figures.temp_bytes,
  figures.argument_bytes,
  figures.output_bytes,
  figures.constant_bytes,
  figures.fragmentation_bytes
FROM figures
JOIN series
  ON series.function_name = figures.function_name
  AND coalesce(series.platform, '') = coalesce(figures.platform, '')
  AND coalesce(series.color, -1) = coalesce(figures.color, -1);
COMMENT ON VIEW asked_history IS
  'Rows of asked_functions as series of runs: a function is followed by name, platform and memory space, from its largest compilation in a run (function_modules) to that in the next, whatever their signatures. diff_pairs, in contrast, pairs all compilations of two runs, those of the same signature first. Key: series_place, place.';
COMMENT ON COLUMN asked_history.series_place IS 'Place of the series: those with an unknown peak first, then the largest peak first.';
COMMENT ON COLUMN asked_history.place IS 'Place of the run in the series, by dumped_at and name.';
COMMENT ON COLUMN asked_history.function_name IS 'function_modules.function_name.';
COMMENT ON COLUMN asked_history.platform IS 'function_modules.platform.';
COMMENT ON COLUMN asked_history.color IS 'function_modules.color.';
COMMENT ON COLUMN asked_history.run_name IS 'function_modules.run_name.';
COMMENT ON COLUMN asked_history.dumped_at IS 'Time of the run''s dumps: runs.dumped_at; NULL if unknown.';
COMMENT ON COLUMN asked_history.entry_signature IS 'Shapes that the compilation was for: module_signatures.entry_signature; NULL if unknown.';
COMMENT ON COLUMN asked_history.module_count IS 'function_modules.module_count.';
COMMENT ON COLUMN asked_history.unknown_count IS 'function_modules.unknown_count.';
COMMENT ON COLUMN asked_history.unknown_reason IS 'function_modules.unknown_reason.';
COMMENT ON COLUMN asked_history.peak_bytes IS 'function_modules.peak_bytes; NULL if the peak of any compilation in the run is unknown.';
COMMENT ON COLUMN asked_history.temp_bytes IS 'function_modules.temp_bytes.';
COMMENT ON COLUMN asked_history.argument_bytes IS 'function_modules.argument_bytes.';
COMMENT ON COLUMN asked_history.output_bytes IS 'function_modules.output_bytes.';
COMMENT ON COLUMN asked_history.constant_bytes IS 'function_modules.constant_bytes.';
COMMENT ON COLUMN asked_history.fragmentation_bytes IS 'function_modules.fragmentation_bytes.';
