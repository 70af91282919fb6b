-- One row per part of a dump file's bytes, compressed; equal files of several modules share them. Key: content_hash, part_ordinal.
CREATE TABLE file_contents (
  content_hash VARCHAR NOT NULL,
  part_ordinal BIGINT NOT NULL,
  size_bytes BIGINT NOT NULL,
  compressed_bytes BIGINT NOT NULL,
  compressed BLOB NOT NULL USING COMPRESSION uncompressed
);
COMMENT ON TABLE file_contents IS
  'One row per part of a dump file''s bytes, compressed; equal files of several modules share them. A later bufdb reads them again (bufdb upgrade), and bufdb export --sources writes the files. No rows for what was ingested with --no-sources. Key: content_hash, part_ordinal.';
COMMENT ON COLUMN file_contents.content_hash IS
  'Hash of the whole file, as in files.content_hash.';
COMMENT ON COLUMN file_contents.part_ordinal IS
  'Position of the part in the file, from 0.';
COMMENT ON COLUMN file_contents.size_bytes IS
  'Size of the part as it is in the file [bytes].';
COMMENT ON COLUMN file_contents.compressed_bytes IS
  'Size of the part as it is stored [bytes].';
COMMENT ON COLUMN file_contents.compressed IS
  'The part as a Zstandard frame.';
