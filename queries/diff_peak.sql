-- title: Change of a peak between two runs, by op, line, shape, …
-- group: change
-- engines: duckdb, spark, sail
--
-- Groups the bytes held at each side's peak (counted as in query peak) by kind of allocation and by
-- a key that survives recompilation, and shows base and new side by side. delta_bytes of a pair of
-- modules and memory space add up exactly to the change of its peak; a pair with an unknown peak
-- has one row that says why. Largest change first; pairs in the order of query diff-modules, which
-- explains the pairing. With only = 'new_temps', shows groups of temporary values that hold bytes
-- at the new peak and none at the base's: what a change of the program, its shapes or the compiler
-- added. Most bytes added first, after a row for each pair with an unknown peak.
--
-- Keys: op is the scope path of the operation without what JAX adds, numbered layers merged
-- (layer_*); source is the line of user code; shape, dtype, opcode; category is the phase (forward,
-- backward, rematerialized, optimizer); stack is the call stack; all is shape, opcode, whole path
-- and line together. A value without an op_name (a copy, a conversion, an initial value) counts
-- under its first use that has one. Parameters keep their own names, and one that only one side
-- donates is one group with the output that takes its bytes: donated, or no longer donated.
--
-- wrong when: The two peaks are different instants of different programs: a group that vanished may
-- still exist at another instant. Shared bytes count for the first value by offset, so two groups
-- can trade bytes without any other cause.
--
-- param function, color, module, base, new
-- param pair VARCHAR = NULL: Functions or modules to pair regardless of names and shapes: OLD=NEW,
--   separated by commas.
-- param by VARCHAR = 'op' | 'source' | 'shape' | 'dtype' | 'opcode' | 'category' | 'stack' | 'all':
--   Key of the groups.
-- param only VARCHAR = 'all' | 'new_temps': Whether to show all groups, or new temporaries.
-- param grown BOOLEAN = false: With only = 'new_temps', whether to show groups that grew, too.
-- param unchanged BOOLEAN = false: Whether to show groups that have the same bytes on both sides.
-- param top_n = 50
--
-- column function_name VARCHAR: Jitted function in new, or in base if new does not have it; the
--   module's key if that is unknown.
-- column base_function_name VARCHAR: The same in base; NULL if base does not have it.
-- column platform VARCHAR: Backend, OLD -> NEW if it differs; NULL if unknown.
-- column color
-- column change VARCHAR: appeared, vanished, grew, shrank, same, unknown; for parameters donated
--   (only in new) or not donated (only in base).
-- column base_bytes HUGEINT: Bytes held at the base's peak [bytes]; NULL if that is unknown.
-- column new_bytes HUGEINT: Bytes held at the new peak [bytes]; NULL if that is unknown.
-- column delta_bytes HUGEINT: The change [bytes]; NULL where new_bytes is.
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp; NULL for
--   bytes that could not be attributed.
-- column base_value_count BIGINT: Values that hold base_bytes.
-- column new_value_count BIGINT: Values that hold new_bytes.
-- column base_added_bytes HUGEINT: Part of base_bytes that XLA adds for the operations of the group
--   [bytes]: values without an op_name, copies, recomputation to save memory.
-- column new_added_bytes HUGEINT: The same part of new_bytes [bytes].
-- column base_shape VARCHAR: Shape of the group's largest value, without layout; NULL if there is
--   none.
-- column new_shape VARCHAR: The same in new.
-- column base_source VARCHAR: FILE:LINE of the largest; NULL if unknown.
-- column new_source VARCHAR: The same in new.
-- column new_run_name VARCHAR: The run of the new module.
-- column part VARCHAR: The group: the key's text; in parentheses an opcode or a kind of allocation
--   if nothing else is known.
-- column unknown_reason VARCHAR: Side with an unknown peak, and why; NULL if both are known.
--
-- alias new-temporaries = diff-peak -p only new_temps -p top_n 20: function_name, platform,
--   new_run_name, color, change, delta_bytes, new_bytes, new_value_count, new_shape, new_source,
--   part, unknown_reason
WITH params AS (
  SELECT
    getvariable('base')::VARCHAR AS base,
    getvariable('new')::VARCHAR AS new,
    getvariable('pair')::VARCHAR AS pair,
    coalesce(getvariable('by')::VARCHAR, 'op') AS by,
    getvariable('function')::VARCHAR AS function,
    getvariable('color')::VARCHAR AS color,
    getvariable('module')::VARCHAR AS module,
    coalesce(getvariable('only')::VARCHAR, 'all') AS only,
    coalesce(getvariable('grown')::BOOLEAN, FALSE) AS grown,
    coalesce(getvariable('unchanged')::BOOLEAN, FALSE) AS unchanged,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
)
SELECT
  parts.function_name, parts.base_function_name, parts.platform, parts.color, parts.change,
  parts.base_bytes, parts.new_bytes, parts.delta_bytes, parts.allocation_kind,
  parts.base_value_count, parts.new_value_count, parts.base_added_bytes, parts.new_added_bytes,
  parts.base_shape, parts.new_shape, parts.base_source, parts.new_source, parts.new_run_name,
  parts.part, parts.unknown_reason
FROM diff_peak(
  (SELECT params.base FROM params), (SELECT params.new FROM params), (SELECT params.by FROM params),
  (SELECT params.pair FROM params)
) AS parts
CROSS JOIN params
WHERE (
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
  AND (params.unchanged OR parts.change <> 'same')
  AND (
    params.only = 'all'
    OR parts.change = 'unknown'
    OR (
      parts.allocation_kind = 'temp'
      AND (parts.change = 'appeared' OR (params.grown AND parts.change = 'grew'))
    )
  )
ORDER BY
  CASE params.only WHEN 'new_temps' THEN parts.delta_bytes END DESC NULLS FIRST,
  parts.place, parts.part_place
LIMIT (SELECT top_n FROM params);
