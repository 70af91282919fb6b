-- title: Functions that one run compiled several times, and why
-- group: overview
-- engines: duckdb, spark
--
-- A jitted function is compiled again for every new set of argument shapes and dtypes, and also
-- when nothing but a sharding, a static argument or a closed-over object is new. One row per run,
-- function and memory space with two compilations or more, most bytes in all compilations first. A
-- signature is the shapes of all entry parameters and of the result.
--
-- wrong when: Two different functions of one name (lambdas, methods, jnp's own broadcast_in_dim)
-- count as one. Signatures know no layouts, shardings, static arguments or weak types, so two
-- compilations of one signature can still be meant. Several processes that dumped into one run
-- compile the same program once each.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 100: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column module_count BIGINT: Compilations, those without allocations counted in each memory space.
-- column signature_count BIGINT: Different signatures among them; NULL if no dump tells one.
-- column repeated_count BIGINT: Compilations of a signature that another one has too.
-- column varying_part VARCHAR: First part of the signature that is not the same in all
--   compilations: "parameter N" or "result"; NULL if all are the same or none is known.
-- column one_shape VARCHAR: A shape of that part: the first in alphabetical order.
-- column other_shape VARCHAR: Another one: the last in alphabetical order.
-- column total_bytes HUGEINT: Allocations of all the compilations together [bytes]; NULL if one has
--   none in its dump.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL if a peak is unknown.
-- column unknown_count BIGINT: Compilations whose peak is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
compilations AS (
  SELECT
    memory_figures.run_name,
    memory_figures.function_name,
    memory_figures.platform,
    memory_figures.color,
    memory_figures.module_id,
    memory_figures.total_bytes,
    memory_figures.peak_bytes,
    memory_figures.peak_unknown_reason,
    module_signatures.entry_signature,
    -- What a compilation without allocations needs is unknown in every memory space.
    CASE
      WHEN memory_figures.color IS NULL THEN 0
      ELSE count(CASE WHEN memory_figures.color IS NULL THEN 1 END) OVER (
        PARTITION BY
          memory_figures.run_name, memory_figures.function_name, memory_figures.platform
      )
    END AS bare_count
  FROM memory_figures
  CROSS JOIN params
  JOIN module_signatures ON module_signatures.module_id = memory_figures.module_id
  WHERE memory_figures.function_name IS NOT NULL
    AND (
      params.run IS NULL
      OR memory_figures.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR memory_figures.function_name GLOB params.function)
    AND (params.platform IS NULL OR memory_figures.platform = params.platform)
    AND (
      params.color IS NULL
      OR memory_figures.color IS NULL
      OR memory_figures.color = params.color
    )
),
functions AS (
  SELECT
    compilations.run_name,
    compilations.function_name,
    compilations.platform,
    compilations.color,
    count(*) + max(compilations.bare_count) AS module_count,
    nullif(count(DISTINCT compilations.entry_signature), 0) AS signature_count,
    count(compilations.entry_signature) - count(DISTINCT compilations.entry_signature)
      AS repeated_count,
    CASE
      WHEN count(*) = count(compilations.total_bytes) AND max(compilations.bare_count) = 0
        THEN sum(compilations.total_bytes)
    END AS total_bytes,
    min(compilations.peak_bytes) AS min_peak_bytes,
    max(compilations.peak_bytes) AS max_peak_bytes,
    count(compilations.peak_unknown_reason) + max(compilations.bare_count) AS unknown_count,
    coalesce(
      min(compilations.peak_unknown_reason),
      CASE WHEN max(compilations.bare_count) > 0 THEN 'the dump has no allocations' END
    ) AS unknown_reason
  FROM compilations
  GROUP BY
    compilations.run_name,
    compilations.function_name,
    compilations.platform,
    compilations.color
  HAVING count(*) + max(compilations.bare_count) > 1
),
parts AS (
  SELECT
    compilations.run_name,
    compilations.function_name,
    compilations.platform,
    compilations.color,
    allocations.parameter_number,
    allocations.parameter_shape AS shape
  FROM compilations
  JOIN allocations ON allocations.module_id = compilations.module_id
  WHERE allocations.parameter_shape_index = '{}'
  UNION ALL
  SELECT
    compilations.run_name,
    compilations.function_name,
    compilations.platform,
    compilations.color,
    NULL AS parameter_number,
    allocations.output_shape AS shape
  FROM compilations
  JOIN allocations ON allocations.module_id = compilations.module_id
  WHERE allocations.output_shape IS NOT NULL
),
varying_parts AS (
  SELECT
    parts.run_name,
    parts.function_name,
    parts.platform,
    parts.color,
    coalesce('parameter ' || parts.parameter_number, 'result') AS varying_part,
    min(parts.shape) AS one_shape,
    max(parts.shape) AS other_shape,
    row_number() OVER (
      PARTITION BY parts.run_name, parts.function_name, parts.platform, parts.color
      ORDER BY parts.parameter_number NULLS LAST
    ) AS place
  FROM parts
  GROUP BY
    parts.run_name,
    parts.function_name,
    parts.platform,
    parts.color,
    parts.parameter_number
  HAVING min(parts.shape) <> max(parts.shape)
)
SELECT
  functions.run_name,
  functions.function_name,
  functions.platform,
  functions.color,
  functions.module_count,
  functions.signature_count,
  functions.repeated_count,
  varying_parts.varying_part,
  varying_parts.one_shape,
  varying_parts.other_shape,
  functions.total_bytes,
  CASE WHEN functions.unknown_count = 0 THEN functions.min_peak_bytes END AS min_peak_bytes,
  CASE WHEN functions.unknown_count = 0 THEN functions.max_peak_bytes END AS max_peak_bytes,
  functions.unknown_count,
  functions.unknown_reason
FROM functions
LEFT JOIN varying_parts
  ON varying_parts.run_name = functions.run_name
  AND varying_parts.function_name = functions.function_name
  AND coalesce(varying_parts.platform, '') = coalesce(functions.platform, '')
  AND coalesce(varying_parts.color, -1) = coalesce(functions.color, -1)
  AND varying_parts.place = 1
ORDER BY
  functions.total_bytes DESC NULLS FIRST,
  functions.run_name,
  functions.function_name,
  functions.platform NULLS LAST,
  functions.color NULLS LAST
LIMIT (SELECT top_n FROM params);
