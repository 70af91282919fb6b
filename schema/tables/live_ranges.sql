-- One row per line of "BufferLiveRange:". Key: module_id, instruction_name, shape_index.
CREATE TABLE live_ranges (
  module_id BIGINT NOT NULL,
  value_id BIGINT,
  instruction_name VARCHAR NOT NULL,
  shape_index VARCHAR NOT NULL,
  start_time BIGINT NOT NULL,
  end_time BIGINT NOT NULL
);
COMMENT ON TABLE live_ranges IS
  'One row per line of "BufferLiveRange:". Key: module_id, instruction_name, shape_index.';
COMMENT ON COLUMN live_ranges.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN live_ranges.value_id IS
  'The value with this name and index; refers to values; NULL if that value has no allocation.';
COMMENT ON COLUMN live_ranges.instruction_name IS
  'Defining instruction.';
COMMENT ON COLUMN live_ranges.shape_index IS
  'Index in that instruction''s shape, in braces.';
COMMENT ON COLUMN live_ranges.start_time IS
  'First instant at which the value is live [program order].';
COMMENT ON COLUMN live_ranges.end_time IS
  'Last instant at which the value is live, inclusive [program order]; schedule_length for what the module returns.';
