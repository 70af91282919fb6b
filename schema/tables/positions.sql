-- One row per position of a value: an instruction whose result contains it. Key: module_id, value_id, position_ordinal.
CREATE TABLE positions (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  position_ordinal BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  shape_index VARCHAR NOT NULL,
  is_defining BOOLEAN NOT NULL
);
COMMENT ON TABLE positions IS
  'One row per position of a value: an instruction whose result contains it. Key: module_id, value_id, position_ordinal.';
COMMENT ON COLUMN positions.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN positions.value_id IS
  'The value; refers to values.';
COMMENT ON COLUMN positions.position_ordinal IS
  'Position in the list below "positions:", from 0.';
COMMENT ON COLUMN positions.instruction_name IS
  'Instruction whose result contains the value.';
COMMENT ON COLUMN positions.shape_index IS
  'Index in that instruction''s shape, in braces; {} where the dump prints none.';
COMMENT ON COLUMN positions.is_defining IS
  'Whether this is the first position, the one that defines the value.';
