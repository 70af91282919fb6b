-- title: Every run with its labels, number of modules and largest peak
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per run in order of the time of its dumps. A filter on function, module, platform or
-- memory space limits what is counted and omits runs without a match.
--
-- param run, function, platform, color, module, top_n = 100
--
-- column run_name
-- column labels VARCHAR: Labels set by the user as K=V, separated by spaces; NULL if there are
--   none.
-- column dumped_at TIMESTAMP: Earliest time of its dump files [UTC]; NULL if it has no file.
-- column ingested_at TIMESTAMP: Time of the last ingest that changed it [UTC].
-- column module_count BIGINT: Modules.
-- column function_count BIGINT: Different jitted functions among them.
-- column platforms VARCHAR: Their platforms, separated by spaces; NULL if no file name has it.
-- column format_eras VARCHAR: Eras of the dump format among them, separated by spaces.
-- column max_partition_count BIGINT: Largest number of partitions of a module; NULL if unknown.
-- column compiler_options VARCHAR: Compiler options that all modules of the run share, except dump
--   options; their number if they exceed 160 characters; NULL if no file has any.
-- column max_peak_bytes HUGEINT: Largest peak of a module in a memory space [bytes]; NULL if there
--   is none or the peak of a module is unknown.
-- column max_need_bytes HUGEINT: Most that a device must hold for a module in a memory space: all
--   allocations except thread-local ones [bytes]; NULL if that of a module is unknown.
-- column max_temp_bytes HUGEINT: Largest sum of temp allocations of a module in a memory space
--   [bytes]; NULL if there is no allocation.
-- column problem_count BIGINT: Diagnostics of the run about incomplete reading.
-- column source_path VARCHAR: Path given to the last ingest into it.
-- column metadata VARCHAR: Labels that describe how the run was made, such as those of bufdb
--   capture (the command, its exit code, flags, commit, versions), as K=V, separated by spaces;
--   NULL if none.
-- column file_content_bytes BIGINT: Its dump files as the database keeps them, compressed [bytes];
--   equal files of several runs are kept once and count in each. 0 for --no-sources.
-- column unknown_count BIGINT: Modules whose peak is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::VARCHAR AS color,
    getvariable('module')::VARCHAR AS module,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
figures AS (
  SELECT
    modules.run_name,
    count(DISTINCT modules.module_id) AS module_count,
    count(DISTINCT modules.function_name) AS function_count,
    string_agg(DISTINCT modules.platform, ' ' ORDER BY modules.platform) AS platforms,
    string_agg(DISTINCT modules.format_era, ' ' ORDER BY modules.format_era) AS format_eras,
    max(modules.partition_count) AS max_partition_count,
    CASE
      WHEN count(asked_modules.peak_unknown_reason) = 0 THEN max(asked_modules.peak_bytes)
    END AS max_peak_bytes,
    CASE
      WHEN count(*) = count(asked_modules.need_bytes) THEN max(asked_modules.need_bytes)
    END AS max_need_bytes,
    max(asked_modules.temp_bytes) AS max_temp_bytes,
    count(DISTINCT modules.module_id) FILTER (
      WHERE asked_modules.peak_unknown_reason IS NOT NULL
    ) AS unknown_count,
    min(asked_modules.peak_unknown_reason) AS unknown_reason
  FROM asked_modules
  JOIN modules ON modules.module_id = asked_modules.module_id
  GROUP BY modules.run_name
),
option_modules AS (
  SELECT
    modules.run_name, modules.module_id,
    compiler_options.option_name || '=' || compiler_options.option_value AS option_text
  FROM compiler_options
  JOIN modules ON modules.module_id = compiler_options.module_id
  -- Dump options do not affect the program.
  WHERE NOT (compiler_options.option_name GLOB 'xla_dump_*')
),
with_options AS (
  SELECT modules.run_name, count(DISTINCT modules.module_id) AS module_count
  FROM compiler_options
  JOIN modules ON modules.module_id = compiler_options.module_id
  GROUP BY modules.run_name
),
shared_options AS (
  SELECT option_modules.run_name, option_modules.option_text
  FROM option_modules
  JOIN with_options ON with_options.run_name = option_modules.run_name
  GROUP BY option_modules.run_name, option_modules.option_text, with_options.module_count
  HAVING count(DISTINCT option_modules.module_id) = with_options.module_count
),
options AS (
  SELECT
    shared_options.run_name,
    -- TPU compilers print dozens; the table compiler_options has all of them.
    CASE
      WHEN sum(length(shared_options.option_text) + 1) <= 160
      THEN string_agg(shared_options.option_text, ' ' ORDER BY shared_options.option_text)
      ELSE count(*) || ' options'
    END AS compiler_options
  FROM shared_options
  GROUP BY shared_options.run_name
),
problems AS (
  SELECT diagnostics.run_name, count(*) AS problem_count
  FROM diagnostics
  WHERE diagnostics.severity IN ('data_loss', 'error')
  GROUP BY diagnostics.run_name
),
contents AS (
  SELECT file_contents.content_hash, sum(file_contents.compressed_bytes) AS compressed_bytes
  FROM file_contents
  GROUP BY file_contents.content_hash
),
run_files AS (
  SELECT DISTINCT modules.run_name, files.content_hash
  FROM files
  JOIN modules ON modules.module_id = files.module_id
),
kept AS (
  SELECT run_files.run_name, sum(contents.compressed_bytes)::BIGINT AS file_content_bytes
  FROM run_files
  JOIN contents ON contents.content_hash = run_files.content_hash
  GROUP BY run_files.run_name
),
labels AS (
  SELECT
    run_labels.run_name,
    string_agg(
      run_labels.label || '=' || run_labels.label_value, ' ' ORDER BY run_labels.label
    ) FILTER (WHERE NOT run_labels.is_metadata) AS labels,
    string_agg(
      run_labels.label || '=' || run_labels.label_value, ' ' ORDER BY run_labels.label
    ) FILTER (WHERE run_labels.is_metadata) AS metadata
  FROM run_labels
  GROUP BY run_labels.run_name
)
SELECT
  runs.run_name, labels.labels, runs.dumped_at, runs.ingested_at,
  coalesce(figures.module_count, 0) AS module_count,
  coalesce(figures.function_count, 0) AS function_count,
  figures.platforms, figures.format_eras, figures.max_partition_count, options.compiler_options,
  figures.max_peak_bytes, figures.max_need_bytes, figures.max_temp_bytes,
  coalesce(problems.problem_count, 0) AS problem_count,
  runs.source_path, labels.metadata, coalesce(kept.file_content_bytes, 0) AS file_content_bytes,
  coalesce(figures.unknown_count, 0) AS unknown_count,
  figures.unknown_reason
FROM runs
CROSS JOIN params
JOIN asked_runs ON asked_runs.run_name = runs.run_name
LEFT JOIN figures ON figures.run_name = runs.run_name
LEFT JOIN labels ON labels.run_name = runs.run_name
LEFT JOIN options ON options.run_name = runs.run_name
LEFT JOIN kept ON kept.run_name = runs.run_name
LEFT JOIN problems ON problems.run_name = runs.run_name
WHERE figures.run_name IS NOT NULL
  OR coalesce(params.function, params.platform, params.color, params.module) IS NULL
ORDER BY runs.dumped_at NULLS LAST, runs.run_name
LIMIT (SELECT top_n FROM params);
