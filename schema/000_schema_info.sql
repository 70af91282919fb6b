-- One row: the version of the schema that this file was made with.
CREATE TABLE schema_info (
  schema_version INTEGER NOT NULL
);
COMMENT ON TABLE schema_info IS
  'One row: the version of the schema that this file was made with.';
COMMENT ON COLUMN schema_info.schema_version IS
  'Version of the tables; bufdb refuses a file of another version.';
