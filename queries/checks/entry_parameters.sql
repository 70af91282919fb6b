-- title: Entry parameters agree with their text, and with the optimized program
-- group: store
--
-- Format section 7.5. The text has the name, the shape and the number, and closes the quotes and
-- brackets that it opens. A module for one partition keeps the shape without its layout; an op_name
-- that both texts of a parameter have is the same.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH texts AS (
  SELECT
    entry_parameters.module_id, entry_parameters.parameter_number, entry_parameters.shape,
    entry_parameters.text,
    regexp_replace(entry_parameters.text, '"(?:[^"\\]|\\.)*"', '', 'g') AS bare
  FROM entry_parameters
)
SELECT
  texts.module_id,
  'parameter ' || texts.parameter_number || ' of shape ' || left(texts.shape, 80)
    || ', its text says otherwise: ' || left(texts.text, 300) AS finding
FROM texts
WHERE NOT starts_with(
    substr(texts.text, instr(texts.text, ' = ') + 3),
    texts.shape || ' parameter(' || texts.parameter_number || ')'
  )
  OR NOT regexp_full_match(texts.bare, '%?[^ ]+ = .* parameter\([0-9]+\)(, [a-z_-]+=.*[^a-z])?')
  OR contains(texts.bare, '"')
  OR len(replace(texts.bare, '{', '')) <> len(replace(texts.bare, '}', ''))
UNION ALL
SELECT
  texts.module_id,
  'parameter ' || texts.parameter_number || ': shape ' || left(texts.shape, 80)
    || ', that of its allocation is ' || left(allocations.parameter_shape, 80) AS finding
FROM texts
JOIN modules ON modules.module_id = texts.module_id
JOIN allocations
  ON allocations.module_id = texts.module_id
  AND allocations.parameter_number = texts.parameter_number
  AND allocations.parameter_shape_index = '{}'
WHERE modules.partition_count = 1
  AND regexp_replace(texts.shape, '\{[^{}]*\}|/\*.*?\*/', '', 'g')
    <> regexp_replace(allocations.parameter_shape, '/\*.*?\*/', '', 'g')
UNION ALL
SELECT
  texts.module_id,
  'parameter ' || texts.parameter_number || ': another op_name than ' || left(instructions.text, 300)
    AS finding
FROM texts
JOIN allocations
  ON allocations.module_id = texts.module_id
  AND allocations.parameter_number = texts.parameter_number
  AND allocations.parameter_shape_index = '{}'
JOIN "values"
  ON "values".module_id = allocations.module_id
  AND "values".allocation_index = allocations.allocation_index
  AND "values".shape_index = '{}'
JOIN instructions
  ON instructions.module_id = "values".module_id
  AND instructions.instruction_name = "values".instruction_name
WHERE contains(instructions.text, ' parameter(' || texts.parameter_number || ')')
  AND regexp_extract(texts.text, 'op_name="((?:[^"\\]|\\.)*)"', 1)
    <> regexp_extract(instructions.text, 'op_name="((?:[^"\\]|\\.)*)"', 1)
  AND contains(texts.text, 'op_name="')
  AND contains(instructions.text, 'op_name="')
ORDER BY module_id, finding;
