-- One row per instruction that does not run once, or touches a part of an array. Key: module_id, instruction_name.
CREATE TABLE instruction_executions (
  module_id BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  execution_count BIGINT,
  spared_bytes BIGINT NOT NULL,
  unknown_reason VARCHAR
);
COMMENT ON TABLE instruction_executions IS
  'One row per instruction outside of fusions that does not run once in a run of the module, being in a loop or a branch, or touches only a part of an operand or result: slices, gathers, and updates in place, by itself or in its fusion. All others run once and touch all. No rows without HLO text. Key: module_id, instruction_name.';
COMMENT ON COLUMN instruction_executions.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN instruction_executions.instruction_name IS
  'The instruction, or the fusion that contains it. Mostly one of instructions.';
COMMENT ON COLUMN instruction_executions.execution_count IS
  'Executions in one run of the module: the trip counts of the loops around it, as XLA prints them (known_trip_count) or from their condition; NULL in a loop with an unknown trip count and in a branch (unknown_reason).';
COMMENT ON COLUMN instruction_executions.spared_bytes IS
  'Bytes of its operands and results in memory space 0 that one execution does not touch [bytes]: of an operand that is only sliced or gathered from, all but what is taken; of an array updated in place, operand and result, all but the update. 0 if it touches all.';
COMMENT ON COLUMN instruction_executions.unknown_reason IS
  'Why execution_count is NULL; NULL where it is known.';
