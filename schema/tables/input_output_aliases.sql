-- One row per entry of input_output_alias in the HLO text: an output that reuses a parameter (donation). Key: module_id, output_index.
CREATE TABLE input_output_aliases (
  module_id BIGINT NOT NULL,
  output_index VARCHAR NOT NULL,
  parameter_number BIGINT NOT NULL,
  parameter_index VARCHAR NOT NULL,
  alias_kind VARCHAR NOT NULL
);
COMMENT ON TABLE input_output_aliases IS
  'One row per entry of input_output_alias in the HLO text: an output that reuses a parameter (donation). Key: module_id, output_index.';
COMMENT ON COLUMN input_output_aliases.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN input_output_aliases.output_index IS
  'Index in the result''s shape, in braces.';
COMMENT ON COLUMN input_output_aliases.parameter_number IS
  'The parameter whose buffer is reused.';
COMMENT ON COLUMN input_output_aliases.parameter_index IS
  'Index in that parameter''s shape, in braces.';
COMMENT ON COLUMN input_output_aliases.alias_kind IS
  'may-alias or must-alias.';
