-- title: A module's row agrees with its files and its other rows
-- group: store
--
-- Format sections 1 and 2: the file name, the parts of the dump, and the printed peak. A file is
-- under the module's key; flags are next to it.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH kinds AS (
  SELECT
    files.module_id,
    count(*) AS file_count,
    bool_or(files.file_kind = 'hlo') AS has_hlo,
    bool_or(files.file_kind = 'before_optimizations') AS has_before,
    bool_or(files.file_kind IN ('values', 'live_range')) AS is_split,
    bool_or(
      files.file_kind IN ('buffer_assignment', 'values', 'live_range', 'proto', 'oom_message')
    ) AS has_buffers,
    bool_or(files.file_kind IN ('buffer_assignment', 'values', 'live_range', 'oom_message'))
      AS has_text,
    bool_or(files.file_kind = 'proto') AS has_proto,
    count(*) <> count(DISTINCT files.file_kind) AS has_doubles,
    min(files.size_bytes) AS smallest_bytes
  FROM files
  GROUP BY files.module_id
),
named AS (
  SELECT
    modules.module_id,
    regexp_extract(
      regexp_extract(
        regexp_replace(modules.module_key, '^.*[.](zip|tar|tar[.]gz|tgz|tar[.]zst):', '', 'i'),
        '[^/]*$'
      ),
      '^(?:([0-9]{1,18})[.])?module_([0-9]{4,18})(?:[.](.+?))??(?:[.]cl_([0-9]{1,18}))?'
        || '(?:[.](?:(?:(cpu|sm_[0-9]+[.][0-9]+[a-z]?_gpu|gfx[0-9a-f]+_gpu|_gpu|[a-z0-9]+)_)?'
        || '(?:after|before)_optimizations[0-9A-Za-z_]*|[^.]+))?$',
      ['dump_time', 'number', 'name', 'cl', 'backend']
    ) AS parts
  FROM modules
),
evidence AS (
  SELECT
    modules.module_id,
    EXISTS (SELECT 1 FROM live_ranges WHERE live_ranges.module_id = modules.module_id)
      AS has_ranges,
    EXISTS (SELECT 1 FROM positions WHERE positions.module_id = modules.module_id)
      AS has_positions,
    EXISTS (
      SELECT 1 FROM peak_contributors WHERE peak_contributors.module_id = modules.module_id
    ) AS has_listing,
    EXISTS (
      SELECT 1 FROM peak_stack_nodes WHERE peak_stack_nodes.module_id = modules.module_id
    ) AS has_tree,
    EXISTS (
      SELECT 1 FROM stack_frames WHERE stack_frames.module_id = modules.module_id
    ) OR EXISTS (
      SELECT 1 FROM input_output_aliases
      WHERE input_output_aliases.module_id = modules.module_id
    ) AS has_header
  FROM modules
),
found AS (
  SELECT
    modules.module_id,
    concat_ws(
      '; ',
      CASE WHEN modules.module_number::VARCHAR
          IS DISTINCT FROM nullif(named.parts.number, '')::BIGINT::VARCHAR
        THEN 'module_number ' || coalesce(modules.module_number::VARCHAR, 'NULL') END,
      CASE WHEN modules.module_name
          IS DISTINCT FROM coalesce(nullif(named.parts.name, ''), modules.hlo_module_name)
        THEN 'module_name ' || coalesce(modules.module_name, 'NULL') END,
      CASE WHEN modules.module_name IS NOT NULL
          AND NOT regexp_full_match(
            modules.module_name, '(SyncTensorsGraph|IrToHlo|ConvertXlaToHlo)([.][0-9]+)?'
          )
          AND modules.function_name IS DISTINCT FROM coalesce(
            nullif(
              regexp_extract(
                regexp_replace(modules.module_name, '[.][0-9]+$', ''),
                '^(?:a|_)_inference_(.+?)_[0-9]+(?:__XlaMustCompile.*)?$',
                1
              ),
              ''
            ),
            nullif(
              regexp_extract(
                regexp_replace(modules.module_name, '[.][0-9]+$', ''),
                '^(cluster_[0-9]+(?:_f[0-9]+n_[0-9]+)?)_*$',
                1
              ),
              ''
            ),
            regexp_replace(
              regexp_replace(modules.module_name, '[.][0-9]+$', ''),
              '^(p?jit|pmap|xmap|xla_computation)_(.)',
              '\2'
            )
          )
        THEN 'function_name ' || coalesce(modules.function_name, 'NULL') END,
      CASE WHEN modules.cl_number IS DISTINCT FROM nullif(named.parts.cl, '')::BIGINT
        THEN 'cl_number ' || coalesce(modules.cl_number::VARCHAR, 'NULL') END,
      CASE WHEN modules.dump_time_us IS DISTINCT FROM nullif(named.parts.dump_time, '')::BIGINT
        THEN 'dump_time_us ' || coalesce(modules.dump_time_us::VARCHAR, 'NULL') END,
      CASE WHEN modules.backend IS DISTINCT FROM nullif(named.parts.backend, '')
        THEN 'backend ' || coalesce(modules.backend, 'NULL') END,
      CASE WHEN modules.platform IS DISTINCT FROM CASE
          WHEN modules.format_era IN ('L', 'M') THEN modules.platform
          WHEN named.parts.backend = 'cpu' THEN 'cpu'
          WHEN ends_with(named.parts.backend, 'gpu') THEN 'gpu'
          WHEN named.parts.cl <> '' OR EXISTS (
              SELECT 1
              FROM "values"
              JOIN shapes ON shapes.shape = "values".shape
              WHERE "values".module_id = modules.module_id
                AND contains(shapes.layout, ':T(')
            ) THEN 'tpu'
        END
        THEN 'platform ' || coalesce(modules.platform, 'NULL') END,
      CASE WHEN modules.has_hlo_text <> (
            coalesce(kinds.has_hlo, FALSE)
            OR coalesce(contains(modules.derived_from_proto, 'hlo_text'), FALSE)
          )
        THEN 'has_hlo_text ' || modules.has_hlo_text END,
      CASE WHEN NOT modules.has_hlo_text AND (
            evidence.has_header
            OR (modules.hlo_module_name IS NOT NULL AND NOT coalesce(kinds.has_before, FALSE))
            OR modules.entry_computation_layout IS NOT NULL
          )
        THEN 'facts of an HLO text that is not there' END,
      CASE WHEN modules.has_hlo_text AND modules.format_era <> 'A'
          AND modules.entry_computation_layout IS NULL
        THEN 'no entry_computation_layout' END,
      CASE WHEN (modules.hlo_module_name IS NULL) <> (modules.partition_count IS NULL)
          OR (modules.hlo_module_name IS NULL) <> (modules.replica_count IS NULL)
          OR least(modules.partition_count, modules.replica_count) < 1
        THEN 'partition_count ' || coalesce(modules.partition_count::VARCHAR, 'NULL')
          || ' and replica_count ' || coalesce(modules.replica_count::VARCHAR, 'NULL')
          || ' with hlo_module_name ' || coalesce(modules.hlo_module_name, 'NULL') END,
      CASE WHEN modules.derived_from_proto IS NOT NULL AND NOT coalesce(kinds.has_proto, FALSE)
        THEN 'derived_from_proto ' || modules.derived_from_proto || ' without a proto' END,
      CASE WHEN (modules.format_era = 'C' AND NOT kinds.is_split AND (
              modules.has_used_values OR modules.has_live_ranges)
              AND modules.derived_from_proto IS NULL)
          OR (modules.format_era = 'P') = coalesce(kinds.has_text, FALSE)
          OR (modules.format_era <> 'C' AND kinds.is_split)
          OR (modules.format_era = 'A' AND modules.has_live_ranges
            AND modules.derived_from_proto IS NULL)
        THEN 'format_era ' || modules.format_era END,
      CASE WHEN evidence.has_positions AND NOT modules.has_used_values
        THEN 'positions, but no used values' END,
      CASE WHEN evidence.has_ranges AND NOT modules.has_live_ranges
          OR modules.has_live_ranges <> (modules.schedule_length IS NOT NULL)
        THEN 'has_live_ranges ' || modules.has_live_ranges || ' with schedule_length '
          || coalesce(modules.schedule_length::VARCHAR, 'NULL') END,
      CASE WHEN (modules.reported_peak_time IS NOT NULL)
            <> (modules.reported_peak_status IS NOT DISTINCT FROM 'printed')
          OR (evidence.has_listing AND modules.reported_peak_time IS NULL)
        THEN 'reported_peak_time ' || coalesce(modules.reported_peak_time::VARCHAR, 'NULL')
          || ' with reported_peak_status ' || coalesce(modules.reported_peak_status, 'NULL') END,
      CASE WHEN evidence.has_tree AND modules.reported_peak_tree_bytes IS NULL
        THEN 'a peak tree without its bytes' END,
      CASE WHEN coalesce(kinds.file_count, 0) = 0 OR NOT kinds.has_buffers OR kinds.has_doubles
          OR kinds.smallest_bytes < 0
        THEN 'files: ' || coalesce(kinds.file_count, 0) END
    ) AS what
  FROM modules
  JOIN named ON named.module_id = modules.module_id
  JOIN evidence ON evidence.module_id = modules.module_id
  LEFT JOIN kinds ON kinds.module_id = modules.module_id
)
SELECT found.module_id, 'not what the rest of the module says: ' || found.what AS finding
FROM found
WHERE found.what <> ''
UNION ALL
SELECT
  files.module_id,
  'file ' || files.path || ': kind ' || files.file_kind || ', hash ' || files.content_hash
    || ', is none of ' || modules.module_key AS finding
FROM files
JOIN modules ON modules.module_id = files.module_id
WHERE NOT regexp_full_match(files.content_hash, '[0-9a-f]{32}')
  OR (
    files.file_kind NOT IN (
      'before_optimizations', 'debug_options', 'after_codegen', 'thunk_sequence',
      'thunk_metadata', 'gpu_target_config'
    )
    AND NOT starts_with(files.path, modules.module_key)
  )
  OR files.file_kind <> CASE
    WHEN ends_with(files.path, '-buffer-assignment-values.txt') THEN 'values'
    WHEN ends_with(files.path, '-live-range.txt') THEN 'live_range'
    WHEN ends_with(files.path, '-buffer-assignment.txt') THEN 'buffer_assignment'
    WHEN ends_with(files.path, '.before_optimizations.txt') THEN 'before_optimizations'
    WHEN ends_with(files.path, '.debug_options') THEN 'debug_options'
    WHEN ends_with(files.path, '.after_codegen.txt') THEN 'after_codegen'
    WHEN ends_with(files.path, '.thunk_sequence.txt') THEN 'thunk_sequence'
    WHEN ends_with(files.path, '.thunk_metadata.txt') THEN 'thunk_metadata'
    WHEN ends_with(files.path, '.gpu_target_config.pbtxt') THEN 'gpu_target_config'
    WHEN ends_with(files.path, '-memory-usage-report.txt') THEN 'memory_report'
    ELSE files.file_kind
  END
UNION ALL
SELECT
  diagnostics.module_id,
  'diagnostic ' || diagnostics.code || ' of run ' || diagnostics.run_name || ', its module is of '
    || modules.run_name AS finding
FROM diagnostics
JOIN modules ON modules.module_id = diagnostics.module_id
WHERE diagnostics.run_name <> modules.run_name
UNION ALL
SELECT
  input_output_aliases.module_id,
  'output ' || input_output_aliases.output_index || ' is said to reuse parameter '
    || input_output_aliases.parameter_number || ' ' || input_output_aliases.parameter_index || ' ('
    || input_output_aliases.alias_kind || '), which has no donated allocation' AS finding
FROM input_output_aliases
SEMI JOIN allocations AS present ON present.module_id = input_output_aliases.module_id
LEFT JOIN allocations
  ON allocations.module_id = input_output_aliases.module_id
  AND allocations.parameter_number = input_output_aliases.parameter_number
  AND allocations.parameter_shape_index = input_output_aliases.parameter_index
WHERE NOT coalesce(allocations.is_maybe_live_out, FALSE)
  OR input_output_aliases.alias_kind NOT IN ('may-alias', 'must-alias')
ORDER BY module_id, finding;
