-- title: Compiler options are names and values as XLA prints them
-- group: store
--
-- Format section 2.1: a flag's name and its value as text of a proto, which is never empty. A flag
-- that is boolean in one module of a run is boolean in all.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH options AS (
  SELECT
    compiler_options.module_id, modules.run_name, compiler_options.option_name,
    compiler_options.option_value,
    compiler_options.option_value IN ('true', 'false') AS is_boolean
  FROM compiler_options
  JOIN modules ON modules.module_id = compiler_options.module_id
),
booleans AS (
  SELECT DISTINCT options.run_name, options.option_name FROM options WHERE options.is_boolean
)
SELECT
  options.module_id,
  'option ' || options.option_name || ' is ' || options.option_value AS finding
FROM options
LEFT JOIN booleans
  ON booleans.run_name = options.run_name
  AND booleans.option_name = options.option_name
WHERE NOT regexp_full_match(options.option_name, '[a-z][a-z0-9_]*')
  OR options.option_value = ''
  OR (NOT options.is_boolean AND booleans.option_name IS NOT NULL)
ORDER BY options.module_id, finding;
