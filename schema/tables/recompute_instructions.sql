-- One row per temp value and instruction that is executed to compute its data again. Key: module_id, value_id, instruction_name.
CREATE TABLE recompute_instructions (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  instruction_name VARCHAR,
  is_low BOOLEAN NOT NULL
);
COMMENT ON TABLE recompute_instructions IS
  'One row per temp value (large ones, as in recompute_costs, and stacks that a scan saves for its backward pass) and instruction that is executed today to compute its data: of what is fused the fusion. A set of values computes each of its instructions again once, so its time is the sum over the different ones. Of a stack those of its high end (recompute_parts: all_again). What only moves data is left out. Nothing without HLO text and for a module whose peak is unknown. Key: module_id, value_id, instruction_name.';
COMMENT ON COLUMN recompute_instructions.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN recompute_instructions.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN recompute_instructions.instruction_name IS
  'The instruction, by which instruction_times has its time: the whole of a fusion, also where a part of it would do. NULL, in the only row of the value, where no instruction is known: a loop or a call is given the data, or it is only moved.';
COMMENT ON COLUMN recompute_instructions.is_low IS
  'Whether it is computed again at the low end, too (recompute_parts: again); FALSE for all other values.';
