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
  peak_time_without BIGINT NOT NULL
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
