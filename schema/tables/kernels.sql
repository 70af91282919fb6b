-- One row per kernel of a module with scratch memory of its own. Key: module_id, instruction_name.
CREATE TABLE kernels (
  module_id BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  target VARCHAR,
  memory_space_name VARCHAR NOT NULL,
  used_bytes BIGINT,
  limit_bytes BIGINT,
  used_unknown_reason VARCHAR,
  limit_unknown_reason VARCHAR
);
COMMENT ON TABLE kernels IS
  'One row per kernel of a module with scratch memory of its own: custom calls of Pallas (Mosaic on TPU and GPU, Triton), and on a GPU what XLA itself compiled, if it uses shared memory (format section 9.3). No rows without HLO text. Key: module_id, instruction_name.';
COMMENT ON COLUMN kernels.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN kernels.instruction_name IS 'The custom call or fusion. Mostly one of instructions.';
COMMENT ON COLUMN kernels.target IS
  'custom_call_target of the kernel, such as tpu_custom_call; NULL for a fusion of XLA.';
COMMENT ON COLUMN kernels.memory_space_name IS
  'vmem: vector memory of a TPU; shared: shared memory of a block on a GPU.';
COMMENT ON COLUMN kernels.used_bytes IS
  'What it uses there, blocks in flight, scratch operands and spilled registers included, arrays that XLA itself puts there not [bytes]. On TPU used_scoped_memory_configs in after_codegen.txt, or in the text of a compiled function; on GPU shared_memory in thunk_sequence.txt, for Mosaic the size that gpu.launch has in the kernel''s module. NULL if unknown (used_unknown_reason).';
COMMENT ON COLUMN kernels.limit_bytes IS
  'What it may use [bytes]: on TPU vmem_limit_bytes of the kernel, or the compiler''s limit where the text has that; on GPU shared_memory_per_block_optin in gpu_target_config.pbtxt. NULL if unknown (limit_unknown_reason).';
COMMENT ON COLUMN kernels.used_unknown_reason IS 'Why used_bytes is NULL; NULL where it is known.';
COMMENT ON COLUMN kernels.limit_unknown_reason IS 'Why limit_bytes is NULL; NULL where it is known.';
