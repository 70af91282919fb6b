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
  'One row per distinct peak of the occupied temp bytes of a memory space: local maxima of occupancy_steps that stand at least 5 % of the highest above the valley between them and a higher one. Nothing for a module whose peak is unknown. Computed from occupancy_steps. Key: module_id, color, peak_ordinal.';
COMMENT ON COLUMN peaks.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN peaks.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN peaks.peak_ordinal IS
  'Place among the peaks of the memory space by height, of equal ones the earlier first. 1 is the peak itself: occupied_peaks.';
COMMENT ON COLUMN peaks.peak_time IS
  'First instant of the highest step of this peak [program order]; 0 if the memory space has no occupied temp bytes.';
COMMENT ON COLUMN peaks.occupied_temp_bytes IS
  'Bytes of temp allocations occupied then [bytes], as in occupancy_steps; with memory_figures.fixed_bytes it is the height that memory_figures.peak_bytes has for the peak.';
COMMENT ON COLUMN peaks.valley_bytes IS
  'How far the occupied temp bytes fall, at the least, on the way to an instant at which more (or before this one as much) is occupied [bytes]; NULL for peak_ordinal 1, which nothing is above.';
