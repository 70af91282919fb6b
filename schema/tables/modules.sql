-- One row per compiled module (one set of dump files that share a stem). Key: module_id; also run_name, module_key.
CREATE TABLE modules (
  module_id BIGINT NOT NULL,
  run_name VARCHAR NOT NULL,
  module_key VARCHAR NOT NULL,
  module_name VARCHAR,
  function_name VARCHAR,
  module_number BIGINT,
  platform VARCHAR CHECK (platform IN ('cpu', 'gpu', 'tpu')),
  backend VARCHAR,
  cl_number BIGINT,
  dump_time_us BIGINT,
  format_era VARCHAR NOT NULL CHECK (format_era IN ('A', 'B', 'C', 'L', 'M', 'P')),
  reported_total_bytes BIGINT,
  schedule_length BIGINT,
  reported_peak_time BIGINT,
  reported_peak_status VARCHAR CHECK (reported_peak_status IN ('printed', 'undetermined', 'unavailable')),
  reported_peak_tree_bytes BIGINT,
  hlo_module_name VARCHAR,
  entry_computation_layout VARCHAR,
  partition_count BIGINT,
  replica_count BIGINT,
  has_used_values BOOLEAN NOT NULL,
  has_live_ranges BOOLEAN NOT NULL,
  has_hlo_text BOOLEAN NOT NULL,
  derived_from_proto VARCHAR,
  own_pattern VARCHAR,
  peak_unknown_reason VARCHAR,
  entry_hash BIGINT,
  shapes_name VARCHAR
);
COMMENT ON TABLE modules IS
  'One row per compiled module (one set of dump files that share a stem). Key: module_id; also run_name, module_key.';
COMMENT ON COLUMN modules.module_id IS
  'Key: 63-bit hash of run_name and module_key, so the order of ingest changes nothing.';
COMMENT ON COLUMN modules.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN modules.module_key IS
  'Path of the dump below the ingested directory, without part suffix and extension: identifies the module in its run.';
COMMENT ON COLUMN modules.module_name IS
  'Name of the HLO module: from the file name, else from the HLO text; NULL if neither has it (XLA drops very long names; the file was renamed).';
COMMENT ON COLUMN modules.function_name IS
  'Jitted function: module_name without its prefix (jit_, pjit_, pmap_, xmap_, xla_computation_) and its .N suffix; for TensorFlow, the part before its counter; without module_name, the first jit(...) of an op_name. NULL if there is neither, and for torch_xla, which gives every program the same name (SyncTensorsGraph).';
COMMENT ON COLUMN modules.module_number IS
  'Number NNNN of "module_NNNN" in the file name, a counter in the process; NULL for files not named by XLA.';
COMMENT ON COLUMN modules.platform IS
  'Backend that compiled the module: from the file name''s backend prefix (cpu_, sm_9.0_gpu_, …) or .cl_N, else tpu if a layout has tiles; NULL if nothing says so.';
COMMENT ON COLUMN modules.backend IS
  'Backend prefix of the stage in the file name without its last "_", such as cpu or sm_9.0a_gpu; NULL if it has none.';
COMMENT ON COLUMN modules.cl_number IS
  'Number N of ".cl_N" in the file name (TPU compiler builds); NULL elsewhere.';
COMMENT ON COLUMN modules.dump_time_us IS
  'Microseconds since 1970 at the head of the file name; NULL without --xla_dump_include_timestamp.';
COMMENT ON COLUMN modules.format_era IS
  'A: allocations without live ranges (2019 to 2021-04); B: everything in one file (through jaxlib 0.9.2); C: split into several files (from 0.10.0); P: a proto (.hlo.pb) alone; M: an out-of-memory message in a log, which lists only the largest buffers and rounded sums; L: sums of a program that compiled, in a log.';
COMMENT ON COLUMN modules.reported_total_bytes IS
  '"Total bytes used: N" [bytes], sum of all allocations modulo 2^64; NULL if the dump has no such line.';
COMMENT ON COLUMN modules.schedule_length IS
  'N of "HloLiveRange (max N)": number of scheduled instructions [program order]; NULL without live ranges.';
COMMENT ON COLUMN modules.reported_peak_time IS
  't of "Live ranges at t (peak)" [program order], the instant that XLA chose; NULL if the dump has none.';
COMMENT ON COLUMN modules.reported_peak_status IS
  'printed: the dump has a peak listing; undetermined: "Peak memory could not be determined"; unavailable: "HloLiveRange not available"; NULL: no such line.';
COMMENT ON COLUMN modules.reported_peak_tree_bytes IS
  'Header of "Stack trace breakdown for peak usage" [bytes]; NULL if there is no tree (before jaxlib 0.7.1, or a total of 0).';
COMMENT ON COLUMN modules.hlo_module_name IS
  'Name on the "HloModule" line of the HLO text, else of the text before optimization; NULL without either file.';
COMMENT ON COLUMN modules.entry_computation_layout IS
  'entry_computation_layout of the HLO text: parameter and result shapes with layouts; NULL without that file.';
COMMENT ON COLUMN modules.partition_count IS
  'num_partitions of the HLO text, else of the text before optimization, 1 if the first line has none; sizes are per device; NULL without either file.';
COMMENT ON COLUMN modules.replica_count IS
  'replica_count, from the same line; NULL without either file.';
COMMENT ON COLUMN modules.has_used_values IS
  'Whether the dump has a list of used values (positions and uses).';
COMMENT ON COLUMN modules.has_live_ranges IS
  'Whether the dump has live ranges.';
COMMENT ON COLUMN modules.has_hlo_text IS
  'Whether the dump has the optimized HLO, as text or in its proto.';
COMMENT ON COLUMN modules.derived_from_proto IS
  'Parts that no text of the dump has and bufdb derived from its proto (.hlo.pb), separated by spaces: allocations used_values live_ranges hlo_text; instructions means only those that the HLO text omits (get-tuple-elements, from jaxlib 0.11). Live ranges, positions, uses, program order and the reported peak are then what XLA would have printed (format section 10.1), except the order of uses; instructions.text is printed by bufdb; peak_stack_nodes is empty. NULL if everything was text.';
COMMENT ON COLUMN modules.own_pattern IS
  'Regular expression for full paths of source files that count as user code although they are in installed packages, made from the globs of bufdb ingest --own. Applies to every row of the module; NULL without --own.';
COMMENT ON COLUMN modules.peak_unknown_reason IS
  'Why the dump does not give the peak of the module, in one sentence (no live ranges, values of a temp allocation missing, …); NULL if the peak is known. A module with a reason has no rows in occupied_peaks and occupancy_steps.';
COMMENT ON COLUMN modules.entry_hash IS
  'Number that is the same for equal shapes of parameters and result, to count or compare thousands of modules: 63 bits of the MD5 of module_signatures.entry_signature (derived_signatures). NULL where that is.';
COMMENT ON COLUMN modules.shapes_name IS
  'Name of a program without a function_name that its compilations share: module_name without its .N suffix, with module_signatures.entry_signature (derived_signatures), as torch_xla has one name for all programs. NULL with a function_name, and where either part is.';
