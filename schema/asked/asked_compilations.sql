-- Every compilation of the requested functions, with its ranks among them.
CREATE OR REPLACE VIEW asked_compilations AS
WITH functions AS (
  SELECT DISTINCT
    asked_functions.run_name, asked_functions.function_name, asked_functions.platform
  FROM asked_functions
),
sizes AS (
  SELECT memory_sums.module_id, sum(memory_sums.total_bytes) AS size_bytes
  FROM memory_sums
  GROUP BY memory_sums.module_id
),
compilations AS (
  SELECT
    dense_rank() OVER (
      ORDER BY module_signatures.pairing_name, functions.platform NULLS LAST
    ) AS function_place,
    functions.run_name, functions.function_name, functions.platform, runs.dumped_at,
    modules.module_id, modules.module_key, modules.module_number, module_signatures.entry_signature,
    coalesce(sizes.size_bytes, 0) AS size_bytes
  FROM functions
  JOIN runs ON runs.run_name = functions.run_name
  JOIN modules
    ON modules.run_name = functions.run_name
    AND coalesce(modules.function_name, modules.module_key) = functions.function_name
    AND modules.platform IS NOT DISTINCT FROM functions.platform
    AND (
      getvariable('module')::VARCHAR IS NULL
      OR modules.module_key GLOB getvariable('module')::VARCHAR
    )
  JOIN module_signatures ON module_signatures.module_id = modules.module_id
  LEFT JOIN sizes ON sizes.module_id = modules.module_id
),
placed AS (
  SELECT
    compilations.function_place, compilations.run_name, compilations.function_name,
    compilations.platform, compilations.dumped_at, compilations.module_id,
    compilations.entry_signature,
    row_number() OVER (
      PARTITION BY compilations.function_place, compilations.run_name
      ORDER BY
        compilations.size_bytes DESC, compilations.module_number NULLS LAST,
        compilations.module_key
    ) AS size_place,
    row_number() OVER (
      PARTITION BY
        compilations.function_place, compilations.run_name, compilations.entry_signature
      ORDER BY
        compilations.size_bytes DESC, compilations.module_number NULLS LAST,
        compilations.module_key
    ) AS signature_place,
    count(*) OVER (PARTITION BY compilations.function_place, compilations.run_name)
      AS module_count
  FROM compilations
)
SELECT
  placed.function_place, placed.run_name, placed.function_name, placed.platform, placed.dumped_at,
  placed.module_id, placed.entry_signature, placed.size_place, placed.signature_place,
  row_number() OVER (
    PARTITION BY placed.function_place, placed.size_place
    ORDER BY placed.module_count DESC, placed.dumped_at NULLS LAST, placed.run_name
  ) AS run_place
FROM placed;
COMMENT ON VIEW asked_compilations IS
  'One row per module of the requested functions (asked_functions), whatever its memory spaces, with its ranks among those of its function. Key: module_id.';
COMMENT ON COLUMN asked_compilations.function_place IS 'A number of the function (module_signatures.pairing_name) and platform.';
COMMENT ON COLUMN asked_compilations.run_name IS 'asked_functions.run_name.';
COMMENT ON COLUMN asked_compilations.function_name IS 'asked_functions.function_name.';
COMMENT ON COLUMN asked_compilations.platform IS 'asked_functions.platform.';
COMMENT ON COLUMN asked_compilations.module_id IS 'The compilation: modules.module_id.';
COMMENT ON COLUMN asked_compilations.size_place IS 'Rank among the compilations of the function in its run: largest total of allocations first, then in XLA''s numbering.';
COMMENT ON COLUMN asked_compilations.signature_place IS 'The same among those of its signature.';
COMMENT ON COLUMN asked_compilations.run_place IS 'Rank of the run by its number of compilations of the function: the run with the most first, then the earliest.';
