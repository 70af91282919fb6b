-- One row per instruction of a module and device that a profile has timed. Key: module_id, instruction_name, device, is_overlapped.
CREATE TABLE instruction_times (
  module_id BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  device VARCHAR NOT NULL,
  is_overlapped BOOLEAN NOT NULL,
  run_count BIGINT NOT NULL,
  execution_count BIGINT NOT NULL,
  total_ns BIGINT NOT NULL,
  self_ns BIGINT NOT NULL,
  least_ns BIGINT NOT NULL,
  largest_ns BIGINT NOT NULL
);
COMMENT ON TABLE instruction_times IS
  'One row per instruction of a module and device that a profile of jax.profiler has timed (bufdb ingest --profile, bufdb profile). The last profile that was read for a run replaces the times of its modules. Nothing of a module without a profile, and of instructions that no profile names. Key: module_id, instruction_name, device, is_overlapped.';
COMMENT ON COLUMN instruction_times.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN instruction_times.instruction_name IS
  'Name in the profile, mostly that of a row of instructions; one that is not there is in a diagnostic (unknown_instruction), and its time counts all the same.';
COMMENT ON COLUMN instruction_times.device IS
  'Where it ran: TPU:0, GPU:1, CPU:0 as the profile numbers the devices of a host; of a profile of several hosts with their number in front, 2/TPU:0.';
COMMENT ON COLUMN instruction_times.is_overlapped IS
  'Whether it is asynchronous and ran while others did (line "Async XLA Ops"): in no sum of times.';
COMMENT ON COLUMN instruction_times.run_count IS
  'How often the module ran on the device in the profile: its run_id or the line "XLA Modules"; where neither is there, the smallest execution_count of its instructions there.';
COMMENT ON COLUMN instruction_times.execution_count IS
  'Executions in the profile; in a loop one for each trip. Of a GPU that does not say which kernels are one execution, the kernels.';
COMMENT ON COLUMN instruction_times.total_ns IS
  'Time of all executions, with what ran within them, as the body of a loop does [nanoseconds]. On CPU it is the time of the thread that begins the instruction.';
COMMENT ON COLUMN instruction_times.self_ns IS
  'The same without the instructions that ran within it [nanoseconds]: what sums of times add up.';
COMMENT ON COLUMN instruction_times.least_ns IS 'Shortest execution [nanoseconds].';
COMMENT ON COLUMN instruction_times.largest_ns IS 'Longest execution [nanoseconds].';
