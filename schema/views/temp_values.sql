-- One row per value that takes bytes of a temp allocation: which ones, and when.
CREATE OR REPLACE VIEW temp_values AS
SELECT
  "values".module_id, allocations.color, "values".allocation_index, "values".value_id,
  "values".size_bytes,
  -- 128 bits: sizes can be close to 2^63.
  "values".offset_bytes::HUGEINT AS begin_bytes,
  "values".offset_bytes::HUGEINT + "values".size_bytes AS end_bytes,
  live_ranges.start_time, live_ranges.end_time
FROM "values"
JOIN allocations
  ON allocations.module_id = "values".module_id
  AND allocations.allocation_index = "values".allocation_index
JOIN live_ranges
  ON live_ranges.module_id = "values".module_id
  AND live_ranges.value_id = "values".value_id
WHERE allocations.kind = 'temp';
COMMENT ON VIEW temp_values IS
  'One row per value placed in a temp allocation and with a live range: which bytes it takes, and when. Key: module_id, value_id.';
COMMENT ON COLUMN temp_values.begin_bytes IS 'Its first byte in the allocation: values.offset_bytes [bytes].';
COMMENT ON COLUMN temp_values.end_bytes IS 'The byte after its last: begin_bytes + size_bytes [bytes].';
COMMENT ON COLUMN temp_values.start_time IS 'live_ranges.start_time [program order].';
COMMENT ON COLUMN temp_values.end_time IS 'live_ranges.end_time [program order].';
