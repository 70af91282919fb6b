-- title: Compiler options are names and values as XLA prints them
-- group: overview
--
-- Format section 2.1: a flag's name and its value as text of a proto. A bare word in small letters is
-- true or false; names of an enum are in capitals, and texts in quotes.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  compiler_options.module_id,
  'option ' || compiler_options.option_name || ' is ' || compiler_options.option_value AS finding
FROM compiler_options
WHERE NOT regexp_full_match(compiler_options.option_name, '[a-z][a-z0-9_]*')
  OR (
    regexp_full_match(compiler_options.option_value, '[a-z]*')
    AND compiler_options.option_value NOT IN ('true', 'false', 'inf', 'nan')
  )
ORDER BY compiler_options.module_id, finding;
