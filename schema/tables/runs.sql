-- One row per run: what one or more calls of "bufdb ingest" stored under one name. Key: run_name.
CREATE TABLE runs (
  run_name VARCHAR PRIMARY KEY,
  source_path VARCHAR NOT NULL,
  dumped_at TIMESTAMP,
  ingested_at TIMESTAMP NOT NULL,
  bufdb_version VARCHAR NOT NULL
);
COMMENT ON TABLE runs IS
  'One row per run: what one or more calls of "bufdb ingest" stored under one name. Key: run_name.';
COMMENT ON COLUMN runs.run_name IS
  'Name of the run: --run, or the name of the ingested directory.';
COMMENT ON COLUMN runs.source_path IS
  'Path given to the last ingest into this run; for people only, not a key.';
COMMENT ON COLUMN runs.dumped_at IS
  'Earliest time of the run''s dump files [UTC]: the microseconds in a file name, else the file''s modification time; NULL if the run has no file.';
COMMENT ON COLUMN runs.ingested_at IS
  'Time of the last ingest that changed the run [UTC].';
COMMENT ON COLUMN runs.bufdb_version IS
  'Version of bufdb that wrote the run.';
