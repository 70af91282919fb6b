-- One row per node of XLA's "Stack trace breakdown for peak usage". Key: module_id, node_ordinal.
CREATE TABLE peak_stack_nodes (
  module_id BIGINT NOT NULL,
  node_ordinal BIGINT NOT NULL,
  parent_ordinal BIGINT,
  depth BIGINT NOT NULL,
  label VARCHAR NOT NULL,
  total_bytes BIGINT NOT NULL,
  current_bytes BIGINT NOT NULL,
  remaining_bytes BIGINT NOT NULL
);
COMMENT ON TABLE peak_stack_nodes IS
  'One row per node of XLA''s "Stack trace breakdown for peak usage". Key: module_id, node_ordinal.';
COMMENT ON COLUMN peak_stack_nodes.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN peak_stack_nodes.node_ordinal IS
  'Place in the printed tree, from 0 (the root).';
COMMENT ON COLUMN peak_stack_nodes.parent_ordinal IS
  'node_ordinal of the parent; NULL for the root.';
COMMENT ON COLUMN peak_stack_nodes.depth IS
  'Depth in the tree, 0 for the root.';
COMMENT ON COLUMN peak_stack_nodes.label IS
  'Text of the node, raw: a computation, an op_name or part of one, an instruction name.';
COMMENT ON COLUMN peak_stack_nodes.total_bytes IS
  '"total: N bytes": the node and everything below it.';
COMMENT ON COLUMN peak_stack_nodes.current_bytes IS
  '"current: N bytes": the node alone.';
COMMENT ON COLUMN peak_stack_nodes.remaining_bytes IS
  '"remaining: N bytes" as printed.';
