-- One row per distinct shape text of any module. Key: shape.
CREATE TABLE shapes (
  shape VARCHAR NOT NULL,
  dtype VARCHAR,
  dimensions BIGINT[],
  dimensions_text VARCHAR,
  layout VARCHAR,
  memory_space BIGINT,
  element_count BIGINT,
  logical_bytes BIGINT,
  is_tuple BOOLEAN NOT NULL
);
COMMENT ON TABLE shapes IS
  'One row per distinct shape text of any module. Key: shape.';
COMMENT ON COLUMN shapes.shape IS
  'Shape with layout, as values.shape prints it.';
COMMENT ON COLUMN shapes.dtype IS
  'Element type (f32, bf16, s4, …), "tuple" for a tuple, "token", "opaque"; NULL if the shape was not understood.';
COMMENT ON COLUMN shapes.dimensions IS
  'Dimensions in the program''s order, major first; the bound of a bounded dynamic dimension, NULL for an unbounded one; [] for a scalar; NULL for a tuple, a token or an opaque.';
COMMENT ON COLUMN shapes.dimensions_text IS
  'Dimensions as printed between the brackets ("16,<=32"); NULL for a tuple.';
COMMENT ON COLUMN shapes.layout IS
  'Layout in its braces, with tiles and memory space; NULL if none is printed.';
COMMENT ON COLUMN shapes.memory_space IS
  'N of S(N) in the layout, 0 where an array has none; NULL for a tuple.';
COMMENT ON COLUMN shapes.element_count IS
  'Number of elements (of pointers for a tuple), with bounds for dynamic dimensions; NULL if unbounded, too large for 64 bits or not understood.';
COMMENT ON COLUMN shapes.logical_bytes IS
  'Size of the bare shape [bytes]: 8 per element for a tuple, 0 for a token; NULL if unbounded, too large for 64 bits or not understood.';
COMMENT ON COLUMN shapes.is_tuple IS
  'Whether the shape is a tuple.';
