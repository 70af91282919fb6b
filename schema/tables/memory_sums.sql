-- One row per module and memory space that it has an allocation in: its allocations, summed up.
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
  'One row per module and memory space that it has an allocation in: its allocations, summed up by kind; memory_figures says more. Computed from allocations; in an out-of-memory message as printed, rounded, and NULL for what it does not say. All are NULL where the allocations are not those of one whole program: not numbered 0, 1, 2, …, or not the sum that the dump says (modules.peak_unknown_reason). Key: module_id, color.';
COMMENT ON COLUMN memory_sums.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN memory_sums.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN memory_sums.argument_bytes IS 'Sum of parameter allocations, donated ones included [bytes]; argument_size_in_bytes of JAX''s memory_analysis().';
COMMENT ON COLUMN memory_sums.output_bytes IS 'Sum of maybe-live-out allocations, donated parameters included [bytes]; output_size_in_bytes of memory_analysis().';
COMMENT ON COLUMN memory_sums.alias_bytes IS 'Sum of allocations that are parameter and maybe-live-out: donated [bytes]; alias_size_in_bytes of memory_analysis().';
COMMENT ON COLUMN memory_sums.temp_bytes IS 'Sum of temp allocations [bytes]; temp_size_in_bytes of memory_analysis(). In an out-of-memory message temporaries and scratch memory ("HLO temp", "scoped").';
COMMENT ON COLUMN memory_sums.constant_bytes IS 'Sum of constant allocations [bytes].';
COMMENT ON COLUMN memory_sums.thread_local_bytes IS 'Sum of thread-local allocations [bytes]: on a stack at run time, not in device memory.';
COMMENT ON COLUMN memory_sums.total_bytes IS 'Sum of all allocations [bytes], in 128 bits; modulo 2^64 the sum over memory spaces is "Total bytes used".';
COMMENT ON COLUMN memory_sums.fixed_bytes IS 'Sum of allocations that are neither temp nor thread-local [bytes]: held for the whole execution. In an out-of-memory message total_bytes less temp_bytes, so all of it where that is not known.';
