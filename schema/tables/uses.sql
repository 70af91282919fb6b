-- One row per use of a value as an operand. Key: module_id, value_id, use_ordinal.
CREATE TABLE uses (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  use_ordinal BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  operand_number BIGINT NOT NULL,
  operand_index VARCHAR NOT NULL
);
COMMENT ON TABLE uses IS
  'One row per use of a value as an operand. Key: module_id, value_id, use_ordinal.';
COMMENT ON COLUMN uses.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN uses.value_id IS
  'The value used; refers to values.';
COMMENT ON COLUMN uses.use_ordinal IS
  'Position in the list below "uses:", from 0.';
COMMENT ON COLUMN uses.instruction_name IS
  'Instruction that uses the value. Source: "  NAME, operand N {…}".';
COMMENT ON COLUMN uses.operand_number IS
  'Number of the operand.';
COMMENT ON COLUMN uses.operand_index IS
  'Index in the operand''s shape, in braces; {} where the dump prints none.';
