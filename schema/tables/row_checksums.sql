-- One row per module and table that holds rows of it: what bufdb wrote there. Key: module_id, table_name.
CREATE TABLE row_checksums (
  module_id BIGINT NOT NULL,
  table_name VARCHAR NOT NULL,
  row_count BIGINT NOT NULL,
  checksum BIGINT NOT NULL,
  hash_probe UBIGINT NOT NULL
);
COMMENT ON TABLE row_checksums IS
  'One row per module and table that holds rows of it: what bufdb wrote there, for "bufdb check". Key: module_id, table_name.';
COMMENT ON COLUMN row_checksums.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN row_checksums.table_name IS
  'The table.';
COMMENT ON COLUMN row_checksums.row_count IS
  'Number of rows of the module in that table.';
COMMENT ON COLUMN row_checksums.checksum IS
  'Sum of DuckDB''s hash() of those rows modulo 2^63, so their order does not matter.';
COMMENT ON COLUMN row_checksums.hash_probe IS
  'hash(''bufdb'') in the DuckDB that wrote the rows; where hash() gives another number today, the checksum cannot be compared.';
