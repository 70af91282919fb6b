-- One row per run and table that holds rows of the run itself: what bufdb wrote there. Key: run_name, table_name.
CREATE TABLE run_checksums (
  run_name VARCHAR NOT NULL,
  table_name VARCHAR NOT NULL,
  row_count BIGINT NOT NULL,
  checksum BIGINT NOT NULL,
  hash_probe UBIGINT NOT NULL
);
COMMENT ON TABLE run_checksums IS
  'One row per run and table that holds rows of the run itself (runs, run_labels, diagnostics without a module): what bufdb wrote there, for "bufdb check". Key: run_name, table_name.';
COMMENT ON COLUMN run_checksums.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN run_checksums.table_name IS
  'The table.';
COMMENT ON COLUMN run_checksums.row_count IS
  'Number of rows of the run in that table.';
COMMENT ON COLUMN run_checksums.checksum IS
  'Sum of DuckDB''s hash() of those rows modulo 2^63, so their order does not matter.';
COMMENT ON COLUMN run_checksums.hash_probe IS
  'hash(''bufdb'') in the DuckDB that wrote the rows; where hash() gives another number today, the checksum cannot be compared.';
