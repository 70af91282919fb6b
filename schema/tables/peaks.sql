-- One row per distinct peak of the occupied temp bytes of a memory space.
CREATE TABLE peaks (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  peak_ordinal BIGINT NOT NULL,
  peak_time BIGINT NOT NULL,
  occupied_temp_bytes HUGEINT NOT NULL,
  valley_bytes HUGEINT
);
COMMENT ON TABLE peaks IS
  'One row per distinct peak of the occupied temp bytes of a memory space: local maxima of occupancy_steps that are above the valley between them and a higher one by at least 5 % of the highest. No rows for a module whose peak is unknown. Computed from occupancy_steps. Key: module_id, color, peak_ordinal.';
COMMENT ON COLUMN peaks.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN peaks.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN peaks.peak_ordinal IS
  'Rank among the peaks of the memory space by height, then time. 1 is the peak itself: occupied_peaks.';
COMMENT ON COLUMN peaks.peak_time IS
  'First instant of the highest step of this peak [program order]; 0 if the memory space has no occupied temp bytes.';
COMMENT ON COLUMN peaks.occupied_temp_bytes IS
  'Bytes of temp allocations occupied at peak_time [bytes], as in occupancy_steps; plus memory_figures.fixed_bytes it is the height, as memory_figures.peak_bytes is for peak 1.';
COMMENT ON COLUMN peaks.valley_bytes IS
  'Lowest occupied temp bytes on the way to a higher instant (or an equal earlier one) [bytes]; NULL for peak_ordinal 1, which is the highest.';
