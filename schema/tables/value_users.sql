-- One row per temp or output value that XLA made without an op_name, with the instruction with an
-- op_name that it is for.
CREATE TABLE value_users (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  user_value_id BIGINT NOT NULL,
  step_count BIGINT NOT NULL
);
COMMENT ON TABLE value_users IS
  'One row per value whose instruction has no op_name (copies, conversions, broadcasts, tuples that XLA made) and that occupies bytes of a temp allocation or represents an output in peak_values, with what it is for: its first use in program order by an instruction with an op_name; if there is none, the same for its first use, up to eight steps. The carry of a loop is for the while. No rows where this leads to no op_name, and for a module whose peak is unknown. Computed from values, live_ranges, peak_values, uses and instructions. Key: module_id, value_id.';
COMMENT ON COLUMN value_users.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN value_users.value_id IS 'The value without an op_name: values.value_id.';
COMMENT ON COLUMN value_users.user_value_id IS
  'First value of the instruction that it is for: values.value_id.';
COMMENT ON COLUMN value_users.step_count IS 'Uses between the value and the instruction: 1 if the instruction uses the value itself, at most 8.';
