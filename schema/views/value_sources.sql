-- One row per value with the line and operation of user code that it is attributed to.
CREATE OR REPLACE VIEW value_sources AS
SELECT
  value_details.module_id, value_details.value_id,
  coalesce(origins.op_name, value_details.op_name) AS op_name,
  coalesce(
    origins.relation || origins.own_source, value_details.own_source,
    origins.relation || origins.library_source, value_details.library_source
  ) AS source,
  coalesce(
    origins.relation || origins.own_source, value_details.own_source,
    'for ' || named_uses.own_source_file || ':' || named_uses.own_source_line,
    origins.relation || origins.library_source, value_details.library_source,
    'for ' || named_uses.library_source
  ) AS source_line,
  coalesce(
    origins.relation || origins.stripped_op_path,
    value_details.stripped_op_path,
    'for ' || named_uses.stripped_op_path
  ) AS stripped_op_path,
  coalesce(
    is_backward(coalesce(origins.op_name, value_details.op_name, named_uses.op_name)), FALSE
  ) AS is_backward
FROM value_details
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = value_details.module_id
  AND origins.value_id = value_details.value_id
LEFT JOIN named_uses
  ON named_uses.module_id = value_details.module_id
  AND named_uses.value_id = value_details.value_id;
COMMENT ON VIEW value_sources IS
  'One row per value with the line and operation that made its data: from value_origins if a loop carries it, else from the instruction that defines it. Key: module_id, value_id.';
COMMENT ON COLUMN value_sources.op_name IS 'Scope path of that operation: value_origins.op_name, else instructions.op_name; NULL if the dump has none.';
COMMENT ON COLUMN value_sources.source IS 'Its innermost file:line that is not library code, "saved file:line" for what a loop stacks, the name of a parameter that a loop carries, "library file:line" if the whole stack is library code; NULL if unknown.';
COMMENT ON COLUMN value_sources.source_line IS 'As source, with "for file:line" for a value that XLA made without an op_name, the line that it is for (value_users); peak_savings.name of source lines. NULL if unknown.';
COMMENT ON COLUMN value_sources.stripped_op_path IS 'Scope path without what JAX adds, with the relation in front as in source_line: peak_savings.name of ops. NULL if unknown.';
COMMENT ON COLUMN value_sources.is_backward IS 'Whether the backward pass makes it: the op_name (of that operation, else of what the value is for) is within transpose(…). jax.checkpoint does not recompute it. FALSE where no op_name is known.';
