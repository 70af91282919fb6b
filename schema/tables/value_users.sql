-- One row per temp or output value that XLA made without an op_name and that is of use to an
-- instruction with one: what it is for.
CREATE TABLE value_users (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  user_value_id BIGINT NOT NULL,
  step_count BIGINT NOT NULL
);
COMMENT ON TABLE value_users IS
  'One row per value whose instruction has no op_name and that takes bytes of a temp allocation while it lives, or stands for an output in peak_values (copies, conversions, broadcasts, tuples that XLA made), with what it is for: of its uses in program order the first by an instruction that has an op_name; if none has, that of its first use, and so on through four. What a loop carries is for the while. No row where this leads to no op_name, and none for a module whose peak is unknown. Computed from values, live_ranges, peak_values, uses and instructions. Key: module_id, value_id.';
COMMENT ON COLUMN value_users.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN value_users.value_id IS 'The value without an op_name: values.value_id.';
COMMENT ON COLUMN value_users.user_value_id IS
  'First value of the instruction that it is for: values.value_id.';
COMMENT ON COLUMN value_users.step_count IS 'Uses from the value to the instruction: 1 if that uses the value itself, at most 4.';
