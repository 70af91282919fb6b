-- The figures of the requested compilations over the runs, in order of the time of their dumps.
CREATE OR REPLACE VIEW asked_history AS
WITH pairs AS (
  SELECT asked_series.model_module_id, asked_series.module_id
  FROM asked_series
),
compilations AS (
  SELECT
    asked_compilations.module_id, asked_compilations.run_name, asked_compilations.function_name,
    asked_compilations.platform, asked_compilations.dumped_at, asked_compilations.entry_signature,
    asked_compilations.size_place
  FROM asked_compilations
),
spaces AS (
  SELECT DISTINCT pairs.model_module_id, memory_figures.color
  FROM pairs
  JOIN memory_figures ON memory_figures.module_id = pairs.module_id
  WHERE memory_figures.color IS NOT NULL
    AND (
      (getvariable('color')::VARCHAR IS NULL AND memory_figures.is_device_memory)
      OR getvariable('color')::VARCHAR IN ('all', CAST(memory_figures.color AS VARCHAR))
    )
),
known AS (
  SELECT
    -- Modules without a function have their own paths, but a series has one name.
    models.function_name, members.platform, models.size_place AS compilation_place,
    pairs.model_module_id, spaces.color, members.run_name, members.dumped_at, members.module_id,
    members.entry_signature, memory_figures.peak_unknown_reason AS unknown_reason,
    memory_figures.peak_bytes, memory_figures.need_bytes, memory_figures.temp_bytes,
    memory_figures.argument_bytes, memory_figures.output_bytes, memory_figures.constant_bytes,
    memory_figures.fragmentation_bytes, memory_figures.total_bytes,
    memory_figures.thread_local_bytes
  FROM pairs
  JOIN compilations AS members ON members.module_id = pairs.module_id
  JOIN compilations AS models ON models.module_id = pairs.model_module_id
  LEFT JOIN spaces ON spaces.model_module_id = pairs.model_module_id
  -- The need of a module without allocations is unknown in every memory space.
  JOIN memory_figures
    ON memory_figures.module_id = pairs.module_id
    AND (memory_figures.color IS NULL OR memory_figures.color = spaces.color)
),
series AS (
  SELECT
    known.function_name, known.platform, known.compilation_place, known.color, known.run_name,
    known.dumped_at, known.module_id, known.entry_signature, known.unknown_reason, known.peak_bytes,
    known.need_bytes, known.temp_bytes, known.argument_bytes, known.output_bytes,
    known.constant_bytes, known.fragmentation_bytes, known.total_bytes, known.thread_local_bytes,
    max(known.peak_bytes) OVER (
      PARTITION BY known.model_module_id, known.color
    ) AS largest_bytes,
    count(known.unknown_reason) OVER (
      PARTITION BY known.model_module_id, known.color
    ) AS unknown_run_count,
    row_number() OVER (
      PARTITION BY known.model_module_id, known.color
      ORDER BY known.dumped_at NULLS LAST, known.run_name
    ) AS place
  FROM known
)
SELECT
  dense_rank() OVER (
    ORDER BY
      CASE WHEN series.unknown_run_count = 0 THEN 1 ELSE 0 END,
      series.largest_bytes DESC NULLS LAST,
      series.function_name,
      series.platform NULLS LAST,
      series.color NULLS LAST,
      series.compilation_place
  ) AS series_place,
  series.place, series.function_name, series.platform, series.compilation_place, series.color,
  series.run_name, series.dumped_at, series.module_id, series.entry_signature,
  series.unknown_reason, series.peak_bytes, series.need_bytes, series.temp_bytes,
  series.argument_bytes, series.output_bytes, series.constant_bytes, series.fragmentation_bytes,
  series.total_bytes, series.thread_local_bytes
FROM series;
COMMENT ON VIEW asked_history IS
  'One row per compilation of asked_series and memory space: its figures in a run, as series of runs. A module without allocations is in every memory space of its series. Key: series_place, place.';
COMMENT ON COLUMN asked_history.series_place IS 'Rank of the series: those with an unknown peak first, then the largest peak first.';
COMMENT ON COLUMN asked_history.place IS 'Position of the run in the series, by dumped_at and name.';
COMMENT ON COLUMN asked_history.function_name IS 'asked_functions.function_name; if the function is unknown, the path of the module in the model run (asked_series.model_module_id).';
COMMENT ON COLUMN asked_history.compilation_place IS 'The followed compilation of the function: asked_compilations.size_place in the run with the most; 1 is the largest.';
COMMENT ON COLUMN asked_history.color IS 'memory_figures.color; NULL if no run of the series has an allocation.';
COMMENT ON COLUMN asked_history.unknown_reason IS 'memory_figures.peak_unknown_reason: why the peak is unknown; NULL if it is known.';
