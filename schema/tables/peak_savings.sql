-- One row per buffer, source line or op that holds temp bytes at the peak: what the peak would be without it.
CREATE TABLE peak_savings (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  what VARCHAR NOT NULL,
  name VARCHAR,
  value_id BIGINT,
  held_bytes HUGEINT NOT NULL,
  saving_bytes HUGEINT NOT NULL,
  half_saving_bytes HUGEINT NOT NULL,
  peak_bytes_without HUGEINT NOT NULL,
  peak_time_without BIGINT NOT NULL,
  backward_bytes HUGEINT NOT NULL,
  saving_form VARCHAR,
  low_saving_bytes HUGEINT,
  low_unknown_reason VARCHAR,
  kept_bytes HUGEINT,
  kept_name VARCHAR,
  low_operation_count BIGINT,
  operation_count BIGINT
);
COMMENT ON TABLE peak_savings IS
  'One row per buffer, source line or op that holds temp bytes at the peak of its memory space (peak_values): what the peak of the same instructions in the same order at the same offsets would be if it held no memory. Exact for that schedule, and an upper bound of what changing it alone can save there; only a prediction for a recompilation, which schedules and fuses again. Savings do not add up: two together save at least as much as the larger one, and more or less than their sum. No rows for a module whose peak is unknown. Computed from values, live_ranges and positions. Key: module_id, color, what, name, value_id.';
COMMENT ON COLUMN peak_savings.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN peak_savings.color IS 'Memory space: allocations.color. Bytes in other memory spaces do not count.';
COMMENT ON COLUMN peak_savings.what IS
  'What would hold no memory. value is one buffer: a value, and those that are the same bytes under another name (a phi of a loop or conditional, and the values it merges).';
COMMENT ON COLUMN peak_savings.name IS 'Name of the group of values; NULL for a single buffer, which value_id names.';
COMMENT ON COLUMN peak_savings.value_id IS
  'The value of the buffer that holds bytes at the peak: peak_values.value_id of temp allocations; NULL for a group of values.';
COMMENT ON COLUMN peak_savings.held_bytes IS
  'Bytes that it holds at the peak [bytes]: sum of peak_values.held_bytes of its values in temp allocations, each byte counted once.';
COMMENT ON COLUMN peak_savings.saving_bytes IS
  'How far the peak falls without it [bytes], 0 to held_bytes: less where another instant is nearly as high, or where a value that stays takes over its bytes at the peak.';
COMMENT ON COLUMN peak_savings.half_saving_bytes IS
  'How far the peak falls if it takes half of its bytes, rounded up at each instant [bytes]: what bf16 for f32 saves, or two chunks. From saving_bytes / 2, rounded down, to saving_bytes.';
COMMENT ON COLUMN peak_savings.peak_bytes_without IS
  'The peak without it [bytes]: memory_figures.peak_bytes minus saving_bytes.';
COMMENT ON COLUMN peak_savings.peak_time_without IS
  'First instant of the peak without it [program order]: what limits the saving. 0 if no temp bytes would be occupied.';
COMMENT ON COLUMN peak_savings.backward_bytes IS
  'Part of held_bytes that the backward pass makes [bytes]: values whose op_name (of what made the data, else of the value, else of what it is for) is within transpose(…). jax.checkpoint recomputes none of it; a row with 0 here is from the forward pass.';
COMMENT ON COLUMN peak_savings.saving_form IS
  'The change that low_saving_bytes is for, among values that a scan saves for its backward pass. wrap: jax.checkpoint around the expression alone, in a program without a policy. policy: one name fewer in an existing policy (its values pass a reduce-precision in the loop body). No dump shows what a first policy would save: it also changes what other lines save, and only tracing the changed program shows that. NULL where low_saving_bytes is.';
COMMENT ON COLUMN peak_savings.low_saving_bytes IS
  'Lower bound of how far the peak falls with that change [bytes], at most saving_bytes: the saving of the stacks that really go, minus kept_bytes, minus the largest slice, which exists while the backward pass recomputes it. With wrap, results that other lines read stay; with policy, what another line holds in another layout. Negative where it costs more than it frees. NULL if unknown (low_unknown_reason). The upper bound is saving_bytes: operands are recomputed too.';
COMMENT ON COLUMN peak_savings.low_unknown_reason IS
  'Why low_saving_bytes is NULL: the backward pass makes all of it, or no loop is known to stack it (no loop, no HLO text, or no residual of its own). NULL where low_saving_bytes is known.';
COMMENT ON COLUMN peak_savings.kept_bytes IS
  'Values of other lines, not saved today and not free, that are kept instead [bytes], in all slices: the nearest ones that recomputing it needs. NULL where low_saving_bytes is.';
COMMENT ON COLUMN peak_savings.kept_name IS 'Lines of these values, the largest first; NULL if there are none.';
COMMENT ON COLUMN peak_savings.low_operation_count IS
  'Operations that recompute the freed values from the kept ones, in all slices; what several stacks need counts once. Belongs to low_saving_bytes. NULL where that is, and where shapes do not give the count (recompute_costs).';
COMMENT ON COLUMN peak_savings.operation_count IS
  'Operations if operands of other lines are recomputed too, back to what is stacked or scanned. Belongs to saving_bytes. NULL where low_operation_count is.';
