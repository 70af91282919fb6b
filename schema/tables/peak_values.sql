-- One row per value that holds bytes at the peak; every byte counts once.
CREATE TABLE peak_values (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  allocation_index BIGINT,
  allocation_kind VARCHAR,
  value_id BIGINT,
  held_bytes BIGINT NOT NULL
);
COMMENT ON TABLE peak_values IS
  'One row per value that holds bytes at the peak of its memory space (memory_figures.peak_time); every byte counts once, so held_bytes of a module and color add up to memory_figures.peak_bytes. No rows for a module whose peak is unknown. Computed from values, live_ranges and occupied_peaks. Key: module_id, allocation_index, value_id.';
COMMENT ON COLUMN peak_values.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN peak_values.color IS 'Memory space of the allocation: allocations.color.';
COMMENT ON COLUMN peak_values.allocation_index IS 'The allocation: allocations.allocation_index; NULL in an out-of-memory message.';
COMMENT ON COLUMN peak_values.allocation_kind IS 'Role of the allocation: allocations.kind, never thread_local. NULL if an out-of-memory message does not say.';
COMMENT ON COLUMN peak_values.value_id IS
  'The value: values.value_id. An allocation that is not temp is held for the whole run and represented by one value: the largest at offset 0, lowest value_id; NULL if the dump lists no such value, and for what an out-of-memory message counts but does not list.';
COMMENT ON COLUMN peak_values.held_bytes IS
  'Bytes of the allocation that count for this value [bytes]: the whole allocation if it is not temp; in a temp allocation, the bytes of the value that no earlier live value covers, in order of offset_bytes, size_bytes (largest first), value_id.';
