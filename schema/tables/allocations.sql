-- One row per BufferAllocation of a module. Key: module_id, allocation_index.
CREATE TABLE allocations (
  module_id BIGINT NOT NULL,
  allocation_index BIGINT NOT NULL,
  size_bytes BIGINT NOT NULL,
  color BIGINT NOT NULL,
  page BIGINT,
  kind VARCHAR NOT NULL CHECK (kind IN ('parameter', 'donated_parameter', 'output', 'constant', 'thread_local', 'temp')),
  is_constant BOOLEAN NOT NULL,
  is_thread_local BOOLEAN NOT NULL,
  is_maybe_live_out BOOLEAN NOT NULL,
  is_preallocated_temp BOOLEAN NOT NULL,
  parameter_number BIGINT,
  parameter_shape VARCHAR,
  parameter_shape_index VARCHAR,
  output_shape VARCHAR,
  other_attributes VARCHAR
);
COMMENT ON TABLE allocations IS
  'One row per BufferAllocation of a module. Key: module_id, allocation_index.';
COMMENT ON COLUMN allocations.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN allocations.allocation_index IS
  'N of "allocation N:".';
COMMENT ON COLUMN allocations.size_bytes IS
  'Size of the allocation, padding included [bytes]. Source: "allocation N: size S".';
COMMENT ON COLUMN allocations.color IS
  'Memory space: "color N", 0 where the line has none; names in memory_spaces.';
COMMENT ON COLUMN allocations.page IS
  '"page N" (from jaxlib 0.11.1); NULL where the line has none, and in a proto alone, which has no pages.';
COMMENT ON COLUMN allocations.kind IS
  'Role, from the flags of the line: donated_parameter is a parameter that is maybe-live-out, output is maybe-live-out alone, temp has none of the other flags (preallocated-temp).';
COMMENT ON COLUMN allocations.is_constant IS
  '"constant" on the line.';
COMMENT ON COLUMN allocations.is_thread_local IS
  '"thread-local" on the line: on a stack at run time, but counted in the total.';
COMMENT ON COLUMN allocations.is_maybe_live_out IS
  '"maybe-live-out" on the line: holds something that the module returns.';
COMMENT ON COLUMN allocations.is_preallocated_temp IS
  '"preallocated-temp" on the line.';
COMMENT ON COLUMN allocations.parameter_number IS
  'N of "parameter N"; NULL if the allocation is no parameter.';
COMMENT ON COLUMN allocations.parameter_shape IS
  'Shape without layout between the bars of "parameter N, shape |…|"; until jaxlib 0.7.1 the whole parameter''s; NULL if the line has none.';
COMMENT ON COLUMN allocations.parameter_shape_index IS
  'Braced index of "at ShapeIndex {…}"; NULL if the allocation is no parameter.';
COMMENT ON COLUMN allocations.output_shape IS
  'Shape without layout of "output shape is |…|": the allocation of the entry root at index {}; NULL elsewhere.';
COMMENT ON COLUMN allocations.other_attributes IS
  'Attributes of the line that bufdb does not know, as printed; NULL if there are none.';
