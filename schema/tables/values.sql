-- One row per HloValue assigned to an allocation. Key: module_id, value_id.
CREATE TABLE values (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  allocation_index BIGINT,
  offset_bytes BIGINT,
  size_bytes BIGINT NOT NULL,
  color BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  shape_index VARCHAR NOT NULL,
  is_phi BOOLEAN NOT NULL,
  shape VARCHAR NOT NULL,
  logical_bytes BIGINT
);
COMMENT ON TABLE values IS
  'One row per HloValue assigned to an allocation. Key: module_id, value_id.';
COMMENT ON COLUMN values.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN values.value_id IS
  'Number in "<326 arg_tuple.3{} (phi) @0>"; from an out-of-memory message, the number of the buffer.';
COMMENT ON COLUMN values.allocation_index IS
  'The allocation above the line; refers to allocations. NULL from an out-of-memory message (modules.format_era M), which has none.';
COMMENT ON COLUMN values.offset_bytes IS
  'First byte in the allocation [bytes]. Source: "offset=N". NULL from an out-of-memory message.';
COMMENT ON COLUMN values.size_bytes IS
  'Assigned size [bytes], including padding. Source: "size=N". Values share bytes over time: do not sum. From an out-of-memory message, the bytes of the shape if they agree with its rounded "Size:", else that size.';
COMMENT ON COLUMN values.color IS
  'Memory space of the value: "@N".';
COMMENT ON COLUMN values.instruction_name IS
  'Defining instruction; refers to instructions. From an out-of-memory message without its name, "Buffer N".';
COMMENT ON COLUMN values.shape_index IS
  'Index of the value in the instruction''s shape, in braces; {} where the dump prints none.';
COMMENT ON COLUMN values.is_phi IS
  '"(phi)": the value merges several definitions and shares their bytes.';
COMMENT ON COLUMN values.shape IS
  'Shape of the value with layout, as printed; parsed in shapes. From an out-of-memory message, the shape of a kernel''s result, or "unknown" for a buffer without one, such as spilled registers.';
COMMENT ON COLUMN values.logical_bytes IS
  'Size of the bare shape [bytes], without padding, 8 bytes per element for a tuple; NULL if the shape was not understood.';
