-- One row per instruction with products, convolutions or an estimate of the compiler. Key: module_id, instruction_name.
CREATE TABLE instruction_costs (
  module_id BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  execution_count BIGINT,
  operation_count BIGINT,
  estimated_cycles BIGINT,
  operation_unknown_reason VARCHAR,
  estimate_unknown_reason VARCHAR
);
COMMENT ON TABLE instruction_costs IS
  'One row per instruction outside of fusions that computes products or convolutions, by itself or in its fusion, calls a library that may, or has an estimate of the compiler in the HLO text: the work of one run of the module there, through loops. XLA''s own cost analysis counts the body of a loop once. No rows without HLO text. Key: module_id, instruction_name.';
COMMENT ON COLUMN instruction_costs.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN instruction_costs.instruction_name IS
  'The instruction, or the fusion that contains it. Mostly one of instructions.';
COMMENT ON COLUMN instruction_costs.execution_count IS
  'Executions in one run of the module: the trip counts of the loops around it, as XLA prints them (known_trip_count) or from their condition; NULL in a loop with an unknown trip count and in a branch.';
COMMENT ON COLUMN instruction_costs.operation_count IS
  'Operations of its products and convolutions in all executions of a run, two for each multiplication and addition, from shapes; other operations are not counted. NULL if unknown (operation_unknown_reason).';
COMMENT ON COLUMN instruction_costs.estimated_cycles IS
  'The compiler''s own estimate for all executions of a run [cycles]: estimated_cycles in its backend_config, which TPU has for most fusions, times execution_count. Not a measurement; depends on the effort of the compilation, and is never mixed with times. NULL without an estimate, and if unknown (estimate_unknown_reason).';
COMMENT ON COLUMN instruction_costs.operation_unknown_reason IS
  'Why operation_count is NULL; NULL where it is known.';
COMMENT ON COLUMN instruction_costs.estimate_unknown_reason IS
  'Why estimated_cycles is NULL although the text has an estimate; NULL where it is known or there is none.';
