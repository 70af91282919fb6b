-- One row per module and table that holds rows of it.
CREATE TABLE row_counts (
  module_id BIGINT NOT NULL,
  table_name VARCHAR NOT NULL,
  row_count BIGINT NOT NULL
);
COMMENT ON TABLE row_counts IS
  'One row per module and table that holds rows of it: how many were stored, for "bufdb check". Key: module_id, table_name.';
COMMENT ON COLUMN row_counts.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN row_counts.table_name IS
  'The table; this one is not counted.';
COMMENT ON COLUMN row_counts.row_count IS
  'Rows that ingest stored there.';
