-- One row per dump file read. Key: module_id, path.
CREATE TABLE files (
  module_id BIGINT NOT NULL,
  path VARCHAR NOT NULL,
  file_kind VARCHAR NOT NULL CHECK (file_kind IN ('buffer_assignment', 'values', 'live_range', 'hlo', 'debug_options')),
  size_bytes BIGINT NOT NULL,
  content_hash VARCHAR NOT NULL
);
COMMENT ON TABLE files IS
  'One row per dump file read. Key: module_id, path.';
COMMENT ON COLUMN files.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN files.path IS
  'Path of the file below the ingested directory.';
COMMENT ON COLUMN files.file_kind IS
  'What the file holds: allocations (and, to jaxlib 0.9.2, all that follows), used values, live ranges, optimised HLO text, compiler flags.';
COMMENT ON COLUMN files.size_bytes IS
  'Size of the file [bytes].';
COMMENT ON COLUMN files.content_hash IS
  '128-bit XXH3 hash of the file, in hexadecimal; an unchanged set of files is not read again.';
