-- One row per entry parameter of a module as the compiler received it, from before_optimizations.txt. Key: module_id, parameter_number.
CREATE TABLE entry_parameters (
  module_id BIGINT NOT NULL,
  parameter_number BIGINT NOT NULL,
  shape VARCHAR NOT NULL,
  text VARCHAR NOT NULL USING COMPRESSION zstd
);
COMMENT ON TABLE entry_parameters IS
  'One row per entry parameter of a module as the compiler received it, from before_optimizations.txt (format section 7.5). Key: module_id, parameter_number.';
COMMENT ON COLUMN entry_parameters.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN entry_parameters.parameter_number IS
  'N of "parameter(N)", which optimization keeps: allocations.parameter_number.';
COMMENT ON COLUMN entry_parameters.shape IS
  'Shape with layout, as printed: the whole array, even if the module is partitioned and a device holds only a part.';
COMMENT ON COLUMN entry_parameters.text IS
  'The instruction as the text prints it, from its "%", with its sharding (macro sharding_text).';
