-- One row per line of a module's debug_options file (flags that differ from their default; from jaxlib 0.6.0). Key: module_id, option_name, option_ordinal.
CREATE TABLE compiler_options (
  module_id BIGINT NOT NULL,
  option_ordinal BIGINT NOT NULL,
  option_name VARCHAR NOT NULL,
  option_value VARCHAR NOT NULL
);
COMMENT ON TABLE compiler_options IS
  'One row per line of a module''s debug_options file (flags that differ from their default; from jaxlib 0.6.0). Key: module_id, option_name, option_ordinal.';
COMMENT ON COLUMN compiler_options.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN compiler_options.option_ordinal IS
  'Place in the file, from 0; an option may occur more than once.';
COMMENT ON COLUMN compiler_options.option_name IS
  'Name of the flag, such as xla_dump_to.';
COMMENT ON COLUMN compiler_options.option_value IS
  'Value as printed.';
