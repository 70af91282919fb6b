-- One row per large temp value with the number of operations that it takes to make its data again.
CREATE TABLE recompute_costs (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  operation_count BIGINT NOT NULL
);
COMMENT ON TABLE recompute_costs IS
  'One row per value of a temp allocation with a hundredth of the peak of its memory space or more, with what it costs to compute its data again. Counted in the HLO text from shapes, as XLA''s cost analysis counts: two for each multiplication and addition of a product or convolution, one per element for all that is elementwise, none for moves. Nothing without HLO text, for a module whose peak is unknown, and where library calls, loops or collectives are in between, whose operations shapes do not tell. Key: module_id, value_id.';
COMMENT ON COLUMN recompute_costs.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN recompute_costs.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN recompute_costs.operation_count IS
  'Operations from what the kernel that makes the data reads: of a fusion all that it holds, of one line in it all that leads to that line there. Of a stack that a loop fills (value_origins) times its slices.';
