-- title: Figures of two runs side by side
-- group: change
-- engines: duckdb, spark, sail
--
-- Shows what changed between two compilations: for each pair of modules and memory space the peak,
-- then arguments, outputs, aliased (donated) bytes, temps, constants, fragmentation and padding, in
-- base and new, with the change. Largest growth first, then what shrank, what is unknown, what only
-- one side has, and what is unchanged. Query diff-peak shows why.
--
-- Name both sides: a run, or LABEL=VALUE for all runs with that label. Modules are paired by
-- function and shapes of arguments and result; then by function alone if the shapes changed; if
-- several match, in order of size. A function only in base and one only in new count as renamed if
-- no other candidate is close: similar shapes (and names), or multiples. Runs with the same other
-- labels are compared with each other.
--
-- wrong when: Modules of one function that were paired by rank of size need not correspond;
-- paired_by shows it.
--
-- param function, color, module, base, new
-- param pair VARCHAR = NULL: Functions or modules to pair regardless of names and shapes: OLD=NEW,
--   separated by commas.
-- param figure VARCHAR = NULL: Only this figure: peak, arguments, outputs, aliased, temps,
--   constants, fragmentation or padding.
-- param top_n = 200
--
-- column function_name VARCHAR: Jitted function in new, or in base if new does not have it; the
--   module's key if that is unknown.
-- column base_function_name VARCHAR: The same in base; NULL if base does not have it.
-- column platform VARCHAR: Backend, OLD -> NEW if it differs; NULL if unknown.
-- column paired_by VARCHAR: Rule that paired the modules: signature, name; for renamed functions
--   signature alone, likeness or asked; each with "rank of size" if there were several; only in
--   base or only in new without a pair.
-- column base_run_name VARCHAR: Run of the base module; NULL if there is none.
-- column new_run_name VARCHAR: Run of the new module; NULL if there is none.
-- column base_module_key VARCHAR: The base dump's path in its run; NULL if there is none.
-- column new_module_key VARCHAR: The new dump's path in its run; NULL if there is none.
-- column color BIGINT: Memory space; NULL where neither side has allocations.
-- column figure VARCHAR: Name of the figure.
-- column base_bytes HUGEINT: The figure in base [bytes]; NULL without the module or if unknown.
-- column new_bytes HUGEINT: The figure in new [bytes]; NULL without the module or if unknown.
-- column delta_bytes HUGEINT: new_bytes minus base_bytes [bytes].
-- column delta_ratio DOUBLE: The same divided by base_bytes; NULL if those are 0.
-- column unknown_reason VARCHAR: Side without the figure, and why; NULL if both have it.
WITH params AS (
  SELECT
    getvariable('base')::VARCHAR AS base,
    getvariable('new')::VARCHAR AS new,
    getvariable('pair')::VARCHAR AS pair,
    getvariable('function')::VARCHAR AS function,
    getvariable('color')::VARCHAR AS color,
    getvariable('module')::VARCHAR AS module,
    getvariable('figure')::VARCHAR AS figure,
    coalesce(getvariable('top_n')::BIGINT, 200) AS top_n
)
SELECT
  figures.function_name, figures.base_function_name, figures.platform, figures.paired_by,
  figures.base_run_name, figures.new_run_name,
  figures.base_module_key, figures.new_module_key, figures.color, figures.figure,
  figures.base_bytes, figures.new_bytes, figures.delta_bytes, figures.delta_ratio,
  figures.unknown_reason
FROM diff_modules(
  (SELECT params.base FROM params), (SELECT params.new FROM params),
  (SELECT params.pair FROM params)
) AS figures
CROSS JOIN params
WHERE (
    params.function IS NULL
    OR figures.base_function_name GLOB params.function
    OR figures.new_function_name GLOB params.function
  )
  AND (
    params.color IN ('all', CAST(figures.color AS VARCHAR))
    OR (params.color IS NULL AND figures.is_device_memory)
    OR figures.color IS NULL
  )
  AND (
    params.module IS NULL
    OR figures.base_module_key GLOB params.module
    OR figures.new_module_key GLOB params.module
  )
  AND (params.figure IS NULL OR figures.figure = params.figure)
ORDER BY figures.place, figures.figure_place
LIMIT (SELECT top_n FROM params);
