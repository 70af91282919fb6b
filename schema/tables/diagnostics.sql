-- One row per problem: something that could not be read or does not add up. Nothing is dropped without one.
CREATE TABLE diagnostics (
  run_name VARCHAR NOT NULL,
  module_id BIGINT,
  severity VARCHAR NOT NULL CHECK (severity IN ('info', 'notice', 'data_loss', 'error')),
  code VARCHAR NOT NULL,
  path VARCHAR,
  line_number BIGINT,
  message VARCHAR NOT NULL
);
COMMENT ON TABLE diagnostics IS
  'One row per problem: something that could not be read or does not add up. Nothing is dropped without one.';
COMMENT ON COLUMN diagnostics.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN diagnostics.module_id IS
  'The module; refers to modules.module_id; NULL if the file could not be tied to one.';
COMMENT ON COLUMN diagnostics.severity IS
  'info: worth knowing; notice: something is missing from the dump; data_loss: part of a dump was not understood; error: the dump contradicts itself or a file could not be read.';
COMMENT ON COLUMN diagnostics.code IS
  'Short name of the kind of finding, such as unreadable_line or total_mismatch.';
COMMENT ON COLUMN diagnostics.path IS
  'File below the ingested directory; NULL if the problem is about a whole module.';
COMMENT ON COLUMN diagnostics.line_number IS
  'Line in that file, from 1; for a message or dump inside a log, whose path is log/message_N, counted from its own beginning. NULL if the problem has no single line.';
COMMENT ON COLUMN diagnostics.message IS
  'What was expected, what was found, what to do.';
