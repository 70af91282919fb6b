-- One row per dump file read. Key: module_id, path.
CREATE TABLE files (
  module_id BIGINT NOT NULL,
  path VARCHAR NOT NULL,
  file_kind VARCHAR NOT NULL CHECK (file_kind IN ('buffer_assignment', 'values', 'live_range', 'hlo', 'before_optimizations', 'debug_options', 'after_codegen', 'thunk_sequence', 'thunk_metadata', 'gpu_target_config', 'proto', 'memory_report', 'oom_message')),
  size_bytes BIGINT NOT NULL,
  content_hash VARCHAR NOT NULL,
  source_stamp VARCHAR,
  line_count BIGINT NOT NULL,
  read_line_count BIGINT NOT NULL,
  known_line_count BIGINT NOT NULL,
  unread_line_count BIGINT NOT NULL
);
COMMENT ON TABLE files IS
  'One row per dump file read. Key: module_id, path.';
COMMENT ON COLUMN files.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN files.path IS
  'Path of the file below the ingested directory.';
COMMENT ON COLUMN files.file_kind IS
  'What the file holds: allocations (through jaxlib 0.9.2 also used values and live ranges), used values, live ranges, optimized HLO text, HLO text as the compiler received it, compiler flags, HLO text after code generation, the thunks of a GPU program, their instructions, its device, the totals of a memory-usage report, an out-of-memory message in a log; proto: a serialized HloProto with its buffer assignment, from which bufdb derives what no text has.';
COMMENT ON COLUMN files.size_bytes IS
  'Size of the file [bytes].';
COMMENT ON COLUMN files.content_hash IS
  '128-bit XXH3 hash of the file, in hexadecimal; an unchanged set of files is not read again.';
COMMENT ON COLUMN files.source_stamp IS
  'For a file in an archive, the 128-bit XXH3 hash of the archive; for an object in a bucket, its size with its ETag or time. Shows that the source is unchanged without reading it; NULL for a file on disk.';
COMMENT ON COLUMN files.line_count IS
  'Lines of the file, including a last one without a line end: the sum of read, known and unread lines. For a proto, lines of the text derived from it: 0 if the text files of the dump have everything.';
COMMENT ON COLUMN files.read_line_count IS
  'Lines whose content is in the tables or was checked against them.';
COMMENT ON COLUMN files.known_line_count IS
  'Lines skipped because they are known to add nothing: empty lines, titles without a number, computations of the HLO text that the buffer files also have, those of the text before optimization.';
COMMENT ON COLUMN files.unread_line_count IS
  'Lines that were not understood; above 0 exactly when the file has diagnostics that say where (code unreadable_line, unreadable_file or truncated_file).';
