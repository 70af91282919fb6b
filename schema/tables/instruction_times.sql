-- One row per instruction of a module and device that a profile timed. Key: module_id, instruction_name, device, is_overlapped.
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
  'One row per instruction of a module and device that a profile of jax.profiler timed (bufdb ingest --profile, bufdb profile). The last profile read for a run replaces the times of its modules. No rows for modules without a profile, or instructions that no profile names. Key: module_id, instruction_name, device, is_overlapped.';
COMMENT ON COLUMN instruction_times.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN instruction_times.instruction_name IS
  'Name in the profile, mostly that of a row of instructions; any other has a diagnostic (unknown_instruction), and its time counts too.';
COMMENT ON COLUMN instruction_times.device IS
  'Where it ran: TPU:0, GPU:1, CPU:0 as the profile numbers the devices of a host; for several hosts with the host number in front, 2/TPU:0.';
COMMENT ON COLUMN instruction_times.is_overlapped IS
  'Whether it is asynchronous and overlapped others (line "Async XLA Ops"); no sum of times includes it.';
COMMENT ON COLUMN instruction_times.run_count IS
  'Runs of the module on the device in the profile: from its run_id or the line "XLA Modules", else the smallest execution_count of its instructions there.';
COMMENT ON COLUMN instruction_times.execution_count IS
  'Executions in the profile; in a loop one per trip. For a GPU whose kernels are not grouped into executions, the kernels.';
COMMENT ON COLUMN instruction_times.total_ns IS
  'Time of all executions, including what ran within them, such as the body of a loop [nanoseconds]. On CPU, the time of the thread that begins the instruction.';
COMMENT ON COLUMN instruction_times.self_ns IS
  'The same without the instructions that ran within it [nanoseconds]: used in sums of times.';
COMMENT ON COLUMN instruction_times.least_ns IS 'Shortest execution [nanoseconds].';
COMMENT ON COLUMN instruction_times.largest_ns IS 'Longest execution [nanoseconds].';
