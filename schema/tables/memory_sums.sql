-- One row per module and memory space in which it has an allocation: sums of its allocations.
CREATE TABLE memory_sums (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  argument_bytes HUGEINT,
  output_bytes HUGEINT,
  alias_bytes HUGEINT,
  temp_bytes HUGEINT,
  constant_bytes HUGEINT,
  thread_local_bytes HUGEINT,
  total_bytes HUGEINT,
  fixed_bytes HUGEINT
);
COMMENT ON TABLE memory_sums IS
  'One row per module and memory space in which it has an allocation: sums of its allocations by kind; memory_figures has more. Computed from allocations; from an out-of-memory message as printed, rounded, and NULL for what it omits. All sums are NULL where the allocations are not those of one complete program: not numbered 0, 1, 2, …, or not adding up to the total in the dump (modules.peak_unknown_reason). Key: module_id, color.';
COMMENT ON COLUMN memory_sums.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN memory_sums.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN memory_sums.argument_bytes IS 'Sum of parameter allocations, including donated ones [bytes]; argument_size_in_bytes of JAX''s memory_analysis().';
COMMENT ON COLUMN memory_sums.output_bytes IS 'Sum of maybe-live-out allocations, including donated parameters [bytes]; output_size_in_bytes of memory_analysis().';
COMMENT ON COLUMN memory_sums.alias_bytes IS 'Sum of allocations that are both parameter and maybe-live-out, that is, donated [bytes]; alias_size_in_bytes of memory_analysis().';
COMMENT ON COLUMN memory_sums.temp_bytes IS 'Sum of temp allocations [bytes]; temp_size_in_bytes of memory_analysis(). From an out-of-memory message, temporaries and scratch memory ("HLO temp", "scoped").';
COMMENT ON COLUMN memory_sums.constant_bytes IS 'Sum of constant allocations [bytes].';
COMMENT ON COLUMN memory_sums.thread_local_bytes IS 'Sum of thread-local allocations [bytes]: on a stack at run time, not in device memory.';
COMMENT ON COLUMN memory_sums.total_bytes IS 'Sum of all allocations [bytes], in 128 bits; the sum over memory spaces is "Total bytes used", modulo 2^64.';
COMMENT ON COLUMN memory_sums.fixed_bytes IS 'Sum of allocations that are neither temp nor thread-local [bytes]: held for the whole execution. From an out-of-memory message, total_bytes minus temp_bytes, or all of total_bytes where temp_bytes is unknown.';
