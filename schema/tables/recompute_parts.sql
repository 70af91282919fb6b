-- One row per stack that a scan saves for its backward pass and part of the work that recomputes it.
CREATE TABLE recompute_parts (
  module_id BIGINT NOT NULL,
  written_by VARCHAR NOT NULL,
  part_kind VARCHAR NOT NULL,
  part_index BIGINT NOT NULL,
  saving_form VARCHAR NOT NULL,
  operation_count BIGINT,
  kept_bytes BIGINT,
  kept_name VARCHAR
);
COMMENT ON TABLE recompute_parts IS
  'One row per stack that a scan saves for its backward pass and part of the work that replaces it: instructions of the loop body that the same stacks need for the same purpose are one part. For a set of stacks (of a line, of several lines), add up the parts of one kind with different numbers, so that work needed by several counts once. No rows without HLO text, and for bodies that are not understood. Key: module_id, written_by, part_kind, part_index.';
COMMENT ON COLUMN recompute_parts.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN recompute_parts.written_by IS 'The stack, by the instruction that inserts its slices: value_origins.written_by.';
COMMENT ON COLUMN recompute_parts.part_kind IS
  'again (recomputed for the lower bound, peak_savings.low_saving_bytes: none for a stack that stays), kept (values of other lines that are kept for it, unless another stack of the set has them as again), all_again (recomputed for the upper bound, with operands of other lines: at least one per stack).';
COMMENT ON COLUMN recompute_parts.part_index IS 'Number of the part in its module: the same instructions for every stack and kind.';
COMMENT ON COLUMN recompute_parts.saving_form IS 'wrap or policy: peak_savings.saving_form.';
COMMENT ON COLUMN recompute_parts.operation_count IS
  'Operations of the part in all slices, as recompute_costs counts them; NULL where shapes do not give the count, and for kept.';
COMMENT ON COLUMN recompute_parts.kept_bytes IS 'Bytes of what is kept, in all slices [bytes]; NULL for other kinds.';
COMMENT ON COLUMN recompute_parts.kept_name IS 'Line of what is kept; NULL for other kinds.';
