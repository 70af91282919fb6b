-- One row per instruction with its time in one run of its module.
CREATE OR REPLACE VIEW run_times AS
WITH devices AS (
  SELECT
    instruction_times.module_id,
    count(DISTINCT instruction_times.device) AS device_count
  FROM instruction_times
  GROUP BY instruction_times.module_id
)
SELECT
  instruction_times.module_id, instruction_times.instruction_name,
  any_value(devices.device_count) AS device_count,
  round(
    sum(instruction_times.self_ns::DOUBLE / instruction_times.run_count)
      / any_value(devices.device_count)
  )::BIGINT AS run_ns
FROM instruction_times
JOIN devices ON devices.module_id = instruction_times.module_id
WHERE NOT instruction_times.is_overlapped
GROUP BY instruction_times.module_id, instruction_times.instruction_name;
COMMENT ON VIEW run_times IS
  'One row per instruction that a profile timed: its time in one run of the module, the mean over the runs and devices in the profile. Asynchronous instructions, which overlap others, are left out. Key: module_id, instruction_name.';
COMMENT ON COLUMN run_times.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN run_times.instruction_name IS 'The instruction: instruction_times.instruction_name.';
COMMENT ON COLUMN run_times.device_count IS 'Devices on which the module was timed.';
COMMENT ON COLUMN run_times.run_ns IS
  'Measured time in a run without what ran within it (instruction_times.self_ns) [nanoseconds]: these add up to the time of all instructions.';
