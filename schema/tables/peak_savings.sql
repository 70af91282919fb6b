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
  'One row per buffer, source line or op that holds temp bytes at the peak of its memory space (peak_values): what the peak of the same instructions in the same order at the same places would be if it held no memory. Exact for that schedule; an upper bound of what treating it alone can save there; of a recompilation, which schedules and fuses anew, a prediction. Savings do not add up: two together save at least as much as the better of them, and more or less than the sum. Nothing for a module whose peak is unknown. Computed from values, live_ranges and positions. Key: module_id, color, what, name, value_id.';
COMMENT ON COLUMN peak_savings.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN peak_savings.color IS 'Memory space: allocations.color. Bytes of others are not seen.';
COMMENT ON COLUMN peak_savings.what IS
  'What would hold nothing: value for one buffer, that is a value and those that are the same bytes under another name: what a loop or conditional merges (a phi), and what it merges.';
COMMENT ON COLUMN peak_savings.name IS 'Name of the group of values; NULL for a single buffer, which value_id names.';
COMMENT ON COLUMN peak_savings.value_id IS
  'The value of the buffer that holds its bytes at the peak, one row each: peak_values.value_id of temp allocations; NULL for a group of values.';
COMMENT ON COLUMN peak_savings.held_bytes IS
  'Bytes that it holds at the peak [bytes]: sum of peak_values.held_bytes of its values in temp allocations, each byte counted once.';
COMMENT ON COLUMN peak_savings.saving_bytes IS
  'Bytes by which the peak falls without it [bytes], 0 to held_bytes: less where another instant is nearly as high, or where bytes are handed over at the peak to a value that stays.';
COMMENT ON COLUMN peak_savings.half_saving_bytes IS
  'Bytes by which the peak falls if it takes half of its bytes, at each instant rounded up [bytes]: what f32 made bf16 saves, or two chunks; saving_bytes / 2, rounded down, or more, and no more than saving_bytes.';
COMMENT ON COLUMN peak_savings.peak_bytes_without IS
  'The peak without it [bytes]: memory_figures.peak_bytes minus saving_bytes.';
COMMENT ON COLUMN peak_savings.peak_time_without IS
  'First instant that is the peak then [program order]: what caps the saving. 0 if no temp bytes would be occupied.';
COMMENT ON COLUMN peak_savings.backward_bytes IS
  'Part of held_bytes that the backward pass makes [bytes]: values whose op_name (of what made the data, else of the value, else of what it is for) is within transpose(…). jax.checkpoint computes none of it again; a row is forward where this is 0.';
COMMENT ON COLUMN peak_savings.saving_form IS
  'What low_saving_bytes is about, for what a scan saves for its backward pass. wrap: jax.checkpoint around the expression alone, in a program without a policy. policy: one name less in a policy that is there (its values pass a reduce-precision in the body of the loop). What a first policy saves is in no dump: it changes what other lines save, too, and only tracing the changed program shows it. NULL as low_saving_bytes.';
COMMENT ON COLUMN peak_savings.low_saving_bytes IS
  'The least by which the peak falls in that form [bytes], no more than saving_bytes: that of the stacks that really go, minus kept_bytes, minus the largest slice, which is there while the backward pass computes it again. Results that other lines read stay with wrap; what another line holds in another layout stays with policy. Below 0 where it costs more than it frees. NULL where it is not known (low_unknown_reason). saving_bytes is the high end: operands are computed again, too.';
COMMENT ON COLUMN peak_savings.low_unknown_reason IS
  'Why low_saving_bytes is NULL: the backward pass makes all of it, or no loop is known to stack it (there is none, no HLO text, or no residual of its own). NULL where it is known.';
COMMENT ON COLUMN peak_savings.kept_bytes IS
  'Values of other lines, neither saved today nor free, that are kept instead [bytes], in all slices: the nearest that computing it again takes. NULL as low_saving_bytes.';
COMMENT ON COLUMN peak_savings.kept_name IS 'Lines of these values, the largest first; NULL if there are none.';
COMMENT ON COLUMN peak_savings.low_operation_count IS
  'Operations to compute again what goes, from what is kept, in all slices; what several stacks need counts once. Belongs to low_saving_bytes. NULL as that, and where shapes do not give them (recompute_costs).';
COMMENT ON COLUMN peak_savings.operation_count IS
  'Operations where operands of other lines are computed again too, back to what is stacked or scanned. Belongs to saving_bytes. NULL as low_operation_count.';
