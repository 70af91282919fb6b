-- One row per line of XLA's printed peak listing. It may not be the true peak, and counts shared bytes twice. Key: module_id, contributor_ordinal.
CREATE TABLE peak_contributors (
  module_id BIGINT NOT NULL,
  contributor_ordinal BIGINT NOT NULL,
  value_id BIGINT,
  instruction_name VARCHAR NOT NULL,
  shape_index VARCHAR,
  logical_bytes BIGINT NOT NULL,
  cumulative_bytes BIGINT
);
COMMENT ON TABLE peak_contributors IS
  'One row per line of XLA''s printed peak listing. It may not be the true peak, and counts shared bytes twice. Key: module_id, contributor_ordinal.';
COMMENT ON COLUMN peak_contributors.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN peak_contributors.contributor_ordinal IS
  'Place in the list, from 0.';
COMMENT ON COLUMN peak_contributors.value_id IS
  'The value; refers to values; NULL if unknown.';
COMMENT ON COLUMN peak_contributors.instruction_name IS
  'Defining instruction.';
COMMENT ON COLUMN peak_contributors.shape_index IS
  'Index in braces; NULL where the line has none (through jaxlib 0.5.3).';
COMMENT ON COLUMN peak_contributors.logical_bytes IS
  'Bytes as printed: bare shape size of the value, through jaxlib 0.5.3 that of the whole instruction.';
COMMENT ON COLUMN peak_contributors.cumulative_bytes IS
  '"cumulative: N bytes" as printed; NULL where the line has none (through jaxlib 0.6.0).';
