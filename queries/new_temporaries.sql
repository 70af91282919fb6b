-- title: Temporaries at the new peak that the base does not have
-- group: comparison
-- engines: duckdb, spark, sail
--
-- Groups of temporary values that hold bytes at the peak in new and held none, or with grown = true
-- fewer, at the peak in base: what a change of the program, of its shapes or of the compiler
-- brought in. Most bytes added first, before them a row for each pair of which a peak is unknown.
-- Query diff-peak shows all groups, also those that went away, and says what the keys mean;
-- diff-modules says how modules are paired.
--
-- wrong when: The two peaks are different instants: a value may have existed in base, only not at
-- its peak. With by = 'all' or 'shape' every changed shape is a new group.
--
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param base VARCHAR = NULL: The run, or LABEL=VALUE, to compare with; nothing without it.
-- param new VARCHAR = NULL: The run, or LABEL=VALUE, that is compared; nothing without it.
-- param by VARCHAR = 'op' | 'source' | 'shape' | 'dtype' | 'opcode' | 'category' | 'stack' | 'all':
--   Key of the groups.
-- param grown BOOLEAN = false: Whether to show groups that grew, too.
-- param top_n BIGINT = 20: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend, OLD -> NEW if it is another one; NULL if unknown.
-- column new_run_name VARCHAR: The run of the new module.
-- column color BIGINT: Memory space.
-- column change VARCHAR: appeared, grew or unknown.
-- column delta_bytes HUGEINT: Bytes more than at the base's peak [bytes]; NULL if a peak is
--   unknown.
-- column new_bytes HUGEINT: Bytes held at the new peak [bytes]; NULL if that is unknown.
-- column new_value_count BIGINT: Values that hold them.
-- column new_shape VARCHAR: Shape of the largest, without layout.
-- column new_source VARCHAR: FILE:LINE of the largest; NULL if unknown.
-- column part VARCHAR: The group: the key's text; in parentheses an opcode or a kind of allocation
--   where nothing else is known.
-- column unknown_reason VARCHAR: Which side's peak is unknown, and why; NULL if none is.
WITH params AS (
  SELECT
    getvariable('base')::VARCHAR AS base,
    getvariable('new')::VARCHAR AS new,
    coalesce(getvariable('by')::VARCHAR, 'op') AS by,
    coalesce(getvariable('grown')::BOOLEAN, FALSE) AS grown,
    getvariable('function')::VARCHAR AS function,
    getvariable('color')::VARCHAR AS color,
    getvariable('module')::VARCHAR AS module,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
)
SELECT
  parts.function_name, parts.platform, parts.new_run_name, parts.color, parts.change,
  parts.delta_bytes, parts.new_bytes, parts.new_value_count, parts.new_shape, parts.new_source,
  parts.part, parts.unknown_reason
FROM diff_peak(
  (SELECT params.base FROM params), (SELECT params.new FROM params), (SELECT params.by FROM params)
) AS parts
CROSS JOIN params
WHERE (
    parts.change = 'unknown'
    OR (
      parts.allocation_kind = 'temp'
      AND (parts.change = 'appeared' OR (params.grown AND parts.change = 'grew'))
    )
  )
  AND (
    params.function IS NULL
    OR parts.base_function_name GLOB params.function
    OR parts.new_function_name GLOB params.function
  )
  AND (
    params.color IN ('all', CAST(parts.color AS VARCHAR))
    OR (params.color IS NULL AND parts.is_device_memory)
    OR parts.color IS NULL
  )
  AND (
    params.module IS NULL
    OR parts.base_module_key GLOB params.module
    OR parts.new_module_key GLOB params.module
  )
ORDER BY parts.delta_bytes DESC NULLS FIRST, parts.place, parts.part_place
LIMIT (SELECT top_n FROM params);
