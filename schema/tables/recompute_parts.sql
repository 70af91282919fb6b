-- One row per stack that a scan saves for its backward pass and part of what it takes to compute it again.
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
  'One row per stack that a scan saves for its backward pass and part of what it takes to leave it out: instructions of the body of its loop that the same stacks need for the same end are one part. Of a set of stacks (a line, several lines) the parts of its kind with different numbers add up, so what several need counts once. Nothing without HLO text, and for bodies that are not understood. Key: module_id, written_by, part_kind, part_index.';
COMMENT ON COLUMN recompute_parts.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN recompute_parts.written_by IS 'The stack, by the instruction that inserts its slices: value_origins.written_by.';
COMMENT ON COLUMN recompute_parts.part_kind IS
  'again (computed again at the low end, peak_savings.low_saving_bytes: none for a stack that stays), kept (values of other lines that are kept for it, unless another stack of the set has them as again), all_again (computed again at the high end, where operands of other lines are, too: at least one of each stack).';
COMMENT ON COLUMN recompute_parts.part_index IS 'Number of the part in its module: the same instructions with every stack and kind.';
COMMENT ON COLUMN recompute_parts.saving_form IS 'wrap or policy: peak_savings.saving_form.';
COMMENT ON COLUMN recompute_parts.operation_count IS
  'Operations of the part in all slices, as recompute_costs counts them; NULL where shapes do not give them, and for kept.';
COMMENT ON COLUMN recompute_parts.kept_bytes IS 'Bytes of what is kept, in all slices [bytes]; NULL for other kinds.';
COMMENT ON COLUMN recompute_parts.kept_name IS 'Line of what is kept; NULL for other kinds.';
