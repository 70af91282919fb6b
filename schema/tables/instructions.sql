-- One row per instruction that is scheduled or defines a value. Key: module_id, instruction_name.
CREATE TABLE instructions (
  module_id BIGINT NOT NULL,
  instruction_name VARCHAR NOT NULL,
  program_order BIGINT,
  opcode VARCHAR,
  fusion_kind VARCHAR,
  shape VARCHAR,
  op_type VARCHAR,
  op_name VARCHAR,
  source_file VARCHAR,
  source_line BIGINT,
  source_end_line BIGINT,
  source_column BIGINT,
  source_end_column BIGINT,
  stack_frame_id BIGINT,
  text VARCHAR USING COMPRESSION zstd
);
COMMENT ON TABLE instructions IS
  'One row per instruction that is scheduled or defines a value. Key: module_id, instruction_name.';
COMMENT ON COLUMN instructions.module_id IS
  'The module; refers to modules.module_id.';
COMMENT ON COLUMN instructions.instruction_name IS
  'Name, unique in the module; not a reliable sign of the opcode.';
COMMENT ON COLUMN instructions.program_order IS
  'Position in "InstructionSequence:", from 0; NULL if not scheduled there (thread-local computations) or without live ranges.';
COMMENT ON COLUMN instructions.opcode IS
  'HLO opcode, from the line "from instruction:" of a value that it defines, else from the HLO text, else from the proto; NULL if the dump gives only the name (without HLO text, for an instruction that defines no value or a jaxlib older than 0.1.72; from jaxlib 0.11, for a get-tuple-element without a proto).';
COMMENT ON COLUMN instructions.fusion_kind IS
  'Kind of a fusion, from "kind=" after its operands: kLoop, kInput, kOutput or kCustom; NULL if it is not a fusion or its opcode is NULL.';
COMMENT ON COLUMN instructions.shape IS
  'Result shape with layout, as printed; NULL where opcode is.';
COMMENT ON COLUMN instructions.op_type IS
  'metadata op_type (TensorFlow), unescaped; NULL if the metadata has none.';
COMMENT ON COLUMN instructions.op_name IS
  'metadata op_name: scope path of the operation, unescaped. An op of a function that JAX lowers once for all calls (format section 7.1) has only its own name there: its path is that of the calls in the text before optimizations. NULL if the metadata has none, and where such calls have several.';
COMMENT ON COLUMN instructions.source_file IS
  'Source file: inline metadata, else the frame of stack_frame_id; NULL if neither is known.';
COMMENT ON COLUMN instructions.source_line IS
  'Source line, from the same place as source_file: as XLA prints it; for a helper whose trace JAX cached (format section 7.1) that is the line of its first call. NULL if unknown.';
COMMENT ON COLUMN instructions.source_end_line IS
  'Last source line; NULL if unknown.';
COMMENT ON COLUMN instructions.source_column IS
  'First column; NULL if unknown.';
COMMENT ON COLUMN instructions.source_end_column IS
  'Last column; NULL if unknown.';
COMMENT ON COLUMN instructions.stack_frame_id IS
  'Innermost frame (from jaxlib 0.8.2), of the calls where op_name is theirs; refers to stack_frames; NULL if the metadata has none, and where the calls have several.';
COMMENT ON COLUMN instructions.text IS
  'The instruction as the dump prints it, from its "%"; NULL if the dump gives only the name.';
