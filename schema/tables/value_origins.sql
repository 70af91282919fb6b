-- One row per value that a loop carries or returns, with the instruction that made its data.
CREATE TABLE value_origins (
  module_id BIGINT NOT NULL,
  value_id BIGINT NOT NULL,
  origin_kind VARCHAR NOT NULL,
  instruction_name VARCHAR,
  opcode VARCHAR,
  op_name VARCHAR,
  source_file VARCHAR,
  source_line BIGINT,
  stack_frame_id BIGINT,
  loop_instruction_name VARCHAR,
  trip_count BIGINT,
  written_by VARCHAR,
  slice_shape VARCHAR,
  slice_bytes BIGINT,
  slice_count BIGINT,
  is_layer_input BOOLEAN NOT NULL,
  step_count BIGINT NOT NULL,
  is_exact BOOLEAN NOT NULL
);
COMMENT ON TABLE value_origins IS
  'One row per value that shares bytes with the carry of a loop, or has no line of user code and comes from a loop (is in its body or uses its carry), with the instruction that made its data, found by walking back through the HLO text, including fused computations. No rows for modules without loops or without HLO text, for parameters of the program, for a buffer in which XLA combines several arrays, for one with more elements than what it is made from (a row selected for each of several experts, a padded copy), unless a loop carries or stacks it, and where the walk reaches no line of user code, no named parameter and no stack. Key: module_id, value_id.';
COMMENT ON COLUMN value_origins.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN value_origins.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN value_origins.origin_kind IS
  'stacked (an array into which a loop inserts a slice per step: what a scan saves or returns), slice (the slice of one step, read from a stack or from a scanned array), carry (passed from step to step and written in the loop), invariant (passed into a loop that does not write it), parameter (an entry parameter that a loop carries or that was copied into one).';
COMMENT ON COLUMN value_origins.instruction_name IS
  'The instruction that made the data; if fused, it is in no other table. Where the walk meets no line of user code, the last computing instruction with a library line. NULL for a stack with neither; all columns up to stack_frame_id are NULL then.';
COMMENT ON COLUMN value_origins.opcode IS 'HLO opcode of that instruction.';
COMMENT ON COLUMN value_origins.op_name IS
  'Its metadata op_name, unescaped; for a parameter, the argument''s name; NULL if the metadata has none.';
COMMENT ON COLUMN value_origins.source_file IS
  'Its source file, as instructions.source_file: inline metadata, else the frame of stack_frame_id; NULL if neither is known, as for a parameter.';
COMMENT ON COLUMN value_origins.source_line IS 'Its source line, from the same place as source_file; NULL if unknown.';
COMMENT ON COLUMN value_origins.stack_frame_id IS
  'Its innermost frame (from jaxlib 0.8.2); refers to stack_frames, whose own_frame_id gives the line of user code; NULL if the metadata has none.';
COMMENT ON COLUMN value_origins.loop_instruction_name IS
  'The while: for a stack, the one whose body inserts the slices; else the first on the walk, which carries the bytes; NULL for a slice of an array that no loop carries.';
COMMENT ON COLUMN value_origins.trip_count IS
  'Iterations of that loop: known_trip_count of its backend_config; NULL if it is not printed (TPU) or unknown.';
COMMENT ON COLUMN value_origins.written_by IS
  'The dynamic-update-slice that inserts a slice into the stack, which may be fused; NULL if the walk met none.';
COMMENT ON COLUMN value_origins.slice_shape IS 'Shape of the inserted slice, as printed; NULL where written_by is.';
COMMENT ON COLUMN value_origins.slice_bytes IS
  'One slice as the stack holds it, without padding [bytes]: times slice_count it is values.logical_bytes. Less than slice_shape implies where f32 is inserted into a bf16 stack. NULL where slice_count is.';
COMMENT ON COLUMN value_origins.slice_count IS
  'Slices in the value: elements of the stack divided by elements of the slice. Differs from trip_count where a step inserts several. NULL if the value is not a stack, or not the stack that the walk met: a tuple table, a buffer in which XLA combined several stacks for one all-reduce.';
COMMENT ON COLUMN value_origins.is_layer_input IS
  'Whether the walk continues from the stack through the carry of its loop: an input of the layer, which a scan saves under any checkpoint policy.';
COMMENT ON COLUMN value_origins.step_count IS 'Instructions on the walk, without get-tuple-elements, which HLO texts omit from jaxlib 0.11.';
COMMENT ON COLUMN value_origins.is_exact IS
  'FALSE if the walk had to guess: it followed the largest operand of a computing instruction without a line of user code, or the last branch of a conditional with several that make data; what a loop carries or stacks has more elements than what it is made from; it ended at an instruction with a line that is not its own (a product that vmap transposed, an array after the first in a combined collective); or it was given up.';
