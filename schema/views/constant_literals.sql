-- One row per constant allocation and value that fills it: its literal, if the dump has it.
CREATE OR REPLACE VIEW constant_literals AS
SELECT
  modules.run_name, allocations.module_id, allocations.allocation_index, allocations.color,
  "values".value_id, "values".shape,
  nullif(
    nullif(regexp_extract(instructions.text, ' constant[(](.*?)[)](, [a-z_]+=|$)', 1), '{...}'), ''
  ) AS literal
FROM allocations
JOIN modules ON modules.module_id = allocations.module_id
JOIN "values"
  ON "values".module_id = allocations.module_id
  AND "values".allocation_index = allocations.allocation_index
  AND "values".size_bytes = allocations.size_bytes
LEFT JOIN instructions
  ON instructions.module_id = "values".module_id
  AND instructions.instruction_name = "values".instruction_name
WHERE allocations.kind = 'constant'
  AND allocations.size_bytes > 0;
COMMENT ON VIEW constant_literals IS
  'One row per constant allocation and value that fills it: what the constant is. Key: module_id, value_id.';
COMMENT ON COLUMN constant_literals.shape IS 'Its shape: values.shape; NULL if unknown.';
COMMENT ON COLUMN constant_literals.literal IS 'The literal as the HLO text has it: instructions.text; NULL without text, or where XLA elided it as {...}.';
