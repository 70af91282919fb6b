-- One row: the versions that made this file.
CREATE TABLE schema_info (
  schema_version INTEGER NOT NULL,
  views_hash VARCHAR NOT NULL
);
COMMENT ON TABLE schema_info IS
  'One row: the versions that made this file.';
COMMENT ON COLUMN schema_info.schema_version IS
  'Version of the tables; bufdb refuses a file of another version.';
COMMENT ON COLUMN schema_info.views_hash IS
  'Hash of the SQL of views and macros; bufdb replaces them when its own differ.';
