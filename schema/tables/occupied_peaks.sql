-- One row per module with a known peak and memory space: the most bytes that its temp allocations hold at one instant. Computed from values and live_ranges. Key: module_id, color.
CREATE TABLE occupied_peaks (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  peak_time BIGINT,
  occupied_temp_bytes HUGEINT NOT NULL,
  naive_live_bytes HUGEINT
);
COMMENT ON TABLE occupied_peaks IS
  'One row per module with a known peak and memory space: the most bytes that its temp allocations hold at one instant. Computed from values and live_ranges. Key: module_id, color.';
COMMENT ON COLUMN occupied_peaks.module_id IS
  'The module; refers to modules.module_id. A module whose peak is unknown has no row.';
COMMENT ON COLUMN occupied_peaks.color IS
  'Memory space, as in allocations.color.';
COMMENT ON COLUMN occupied_peaks.peak_time IS
  'First instant with that maximum [program order]; 0 if the memory space has no occupied temp bytes; NULL for an out-of-memory message, which does not say when.';
COMMENT ON COLUMN occupied_peaks.occupied_temp_bytes IS
  'Maximum over time of the union of the byte ranges of live values in temp allocations [bytes]; shared bytes count once. From values.offset_bytes, values.size_bytes, live_ranges; from an out-of-memory message, temporaries minus their fragmentation, as printed; 0 where it gives none.';
COMMENT ON COLUMN occupied_peaks.naive_live_bytes IS
  'Maximum over time of the sum of values.size_bytes of all live values in allocations of this memory space [bytes]: overcounts, because shared bytes count once per value. For comparison with other tools. NULL for an out-of-memory message.';
