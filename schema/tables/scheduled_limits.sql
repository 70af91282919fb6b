-- One row per message in a log with what XLA planned a program's memory for. Key: module_id.
CREATE TABLE scheduled_limits (
  module_id BIGINT NOT NULL,
  limit_bytes BIGINT NOT NULL,
  slack_bytes BIGINT NOT NULL,
  least_bytes BIGINT,
  first_bytes BIGINT,
  base_bytes BIGINT
);
COMMENT ON TABLE scheduled_limits IS
  'One row per message in a log with what XLA planned a program''s memory for, from its warnings: "Can''t reduce memory use below …", "The byte size of input/output arguments (…) exceeds the base limit (…)". Key: module_id.';
COMMENT ON COLUMN scheduled_limits.module_id IS
  'The message; refers to modules.module_id.';
COMMENT ON COLUMN scheduled_limits.limit_bytes IS
  'What XLA planned for, arguments and outputs apart: what its scheduler and its rematerialization aim at [bytes]. Below 0 if arguments and outputs alone are more than the program may use; 0 if it says that they are.';
COMMENT ON COLUMN scheduled_limits.slack_bytes IS
  'How far off it may be, either way [bytes]: half of the last digit of a rounded size; 0 if it is exact.';
COMMENT ON COLUMN scheduled_limits.least_bytes IS
  'XLA''s own estimate of the program after rematerialization [bytes]; NULL if it does not say.';
COMMENT ON COLUMN scheduled_limits.first_bytes IS
  'The same before rematerialization [bytes]; NULL if it does not say.';
COMMENT ON COLUMN scheduled_limits.base_bytes IS
  'What XLA planned for with arguments and outputs, before xla_gpu_memory_limit_slop_factor [bytes]; NULL if it does not say.';
