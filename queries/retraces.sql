-- title: Functions that one run compiled several times, and why
-- group: change
-- engines: duckdb, spark, sail
--
-- A jitted function is compiled again for every new set of argument shapes and dtypes, and also
-- when only a sharding, a static argument or a closed-over object is new. One row per run, function
-- and memory space with at least two compilations, most bytes in all compilations first. A
-- signature is the shapes of all entry parameters and of the result.
--
-- wrong when: Two different functions with the same name (lambdas, methods, jnp's own
-- broadcast_in_dim) count as one. Signatures do not include layouts, shardings, static arguments or
-- weak types, so two compilations of one signature can be intended. Several processes that dumped
-- into one run compile the same program once each.
--
-- param run, function, platform, color, module, top_n = 100
--
-- column run_name
-- column function_name VARCHAR: Jitted function.
-- column platform
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column module_count BIGINT: Compilations; those without allocations count in each memory space.
-- column signature_count BIGINT: Different signatures among them; NULL if no dump gives one.
-- column repeated_count BIGINT: Compilations whose signature another one has too.
-- column varying_part VARCHAR: First part of the signature that differs between compilations:
--   "parameter N" or "result"; NULL if none differs or none is known.
-- column one_shape VARCHAR: A shape of that part: the first in alphabetical order.
-- column other_shape VARCHAR: Another shape: the last in alphabetical order.
-- column total_bytes HUGEINT: Allocations of all compilations together [bytes]; NULL if the dump of
--   one has none.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL if a peak is unknown.
-- column unknown_count BIGINT: Compilations whose peak is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
compilations AS (
  SELECT
    asked_modules.run_name, asked_modules.function_name, asked_modules.platform,
    asked_modules.color, asked_modules.module_id, asked_modules.total_bytes,
    asked_modules.peak_bytes, asked_modules.peak_unknown_reason, module_signatures.entry_signature,
    -- The need of a compilation without allocations is unknown in every memory space.
    CASE
      WHEN asked_modules.color IS NULL THEN 0
      ELSE count(CASE WHEN asked_modules.color IS NULL THEN 1 END) OVER (
        PARTITION BY asked_modules.run_name, asked_modules.function_name, asked_modules.platform
      )
    END AS bare_count
  FROM asked_modules
  JOIN module_signatures ON module_signatures.module_id = asked_modules.module_id
  WHERE asked_modules.function_name IS NOT NULL
),
functions AS (
  SELECT
    run_name, function_name, platform, color,
    count(*) + max(bare_count) AS module_count,
    nullif(count(DISTINCT entry_signature), 0) AS signature_count,
    count(entry_signature) - count(DISTINCT entry_signature) AS repeated_count,
    CASE WHEN count(*) = count(total_bytes) AND max(bare_count) = 0 THEN sum(total_bytes) END
      AS total_bytes,
    min(peak_bytes) AS min_peak_bytes,
    max(peak_bytes) AS max_peak_bytes,
    count(peak_unknown_reason) + max(bare_count) AS unknown_count,
    coalesce(
      min(peak_unknown_reason),
      CASE WHEN max(bare_count) > 0 THEN 'the dump has no allocations' END
    ) AS unknown_reason
  FROM compilations
  GROUP BY run_name, function_name, platform, color
  HAVING count(*) + max(bare_count) > 1
),
parts AS (
  SELECT
    compilations.run_name, compilations.function_name, compilations.platform, compilations.color,
    allocations.parameter_number, allocations.parameter_shape AS shape
  FROM compilations
  JOIN allocations ON allocations.module_id = compilations.module_id
  WHERE allocations.parameter_shape_index = '{}'
  UNION ALL
  SELECT
    compilations.run_name, compilations.function_name, compilations.platform, compilations.color,
    NULL AS parameter_number,
    allocations.output_shape AS shape
  FROM compilations
  JOIN allocations ON allocations.module_id = compilations.module_id
  WHERE allocations.output_shape IS NOT NULL
),
varying_parts AS (
  SELECT
    run_name, function_name, platform, color,
    coalesce('parameter ' || parameter_number, 'result') AS varying_part,
    min(shape) AS one_shape,
    max(shape) AS other_shape,
    row_number() OVER (
      PARTITION BY run_name, function_name, platform, color
      ORDER BY parameter_number NULLS LAST
    ) AS place
  FROM parts
  GROUP BY run_name, function_name, platform, color, parameter_number
  HAVING min(shape) <> max(shape)
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.module_count, functions.signature_count, functions.repeated_count,
  varying_parts.varying_part, varying_parts.one_shape, varying_parts.other_shape,
  functions.total_bytes,
  CASE WHEN functions.unknown_count = 0 THEN functions.min_peak_bytes END AS min_peak_bytes,
  CASE WHEN functions.unknown_count = 0 THEN functions.max_peak_bytes END AS max_peak_bytes,
  functions.unknown_count, functions.unknown_reason
FROM functions
LEFT JOIN varying_parts
  ON varying_parts.run_name = functions.run_name
  AND varying_parts.function_name = functions.function_name
  AND coalesce(varying_parts.platform, '') = coalesce(functions.platform, '')
  AND coalesce(varying_parts.color, -1) = coalesce(functions.color, -1)
  AND varying_parts.place = 1
ORDER BY
  functions.total_bytes DESC NULLS FIRST, functions.run_name, functions.function_name,
  functions.platform NULLS LAST, functions.color NULLS LAST
LIMIT (SELECT top_n FROM params);
