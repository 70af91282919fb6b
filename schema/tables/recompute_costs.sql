-- One row per large temp value with the number of operations that recompute its data.
CREATE TABLE recompute_costs (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  operation_count BIGINT NOT NULL
);
COMMENT ON TABLE recompute_costs IS
  'One row per value of a temp allocation that is at least 1/100 of the peak of its memory space, with the cost of recomputing its data. Counted from shapes in the HLO text, like XLA''s cost analysis: two for each multiplication and addition of a product or convolution, one per element of elementwise operations, none for moves. No rows without HLO text, for a module whose peak is unknown, and where library calls, loops or collectives are involved, whose operations do not follow from shapes. Key: module_id, value_id.';
COMMENT ON COLUMN recompute_costs.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN recompute_costs.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN recompute_costs.operation_count IS
  'Operations from the inputs of the kernel that makes the data: all operations of a fusion, or those in it that lead to the line in question. For a stack that a loop fills (value_origins), times the number of slices.';
