-- One row per total of a module's memory-usage-report. Key: module_id, color.
CREATE TABLE reported_sums (
  module_id BIGINT NOT NULL,
  color BIGINT,
  total_bytes HUGEINT NOT NULL
);
COMMENT ON TABLE reported_sums IS
  'One row per total of a module''s memory-usage-report, which bufdb check compares with memory_sums; no rows for a module without the file. Key: module_id, color.';
COMMENT ON COLUMN reported_sums.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN reported_sums.color IS
  'Memory space, N of "Memory Space: LABEL (color=N)" (from jaxlib 0.9.2); NULL for the total over all spaces (jaxlib 0.4.35 to 0.9.1).';
COMMENT ON COLUMN reported_sums.total_bytes IS
  'Size of all allocations [bytes], modulo 2^64. Source: "Total bytes: N", "Total bytes used: N".';
