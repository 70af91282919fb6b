-- One row per value that a loop carries, or that comes out of one, with the instruction that made its data.
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
  'One row per value that shares bytes with what a loop carries, or bears no line of the user''s and comes out of a loop (stands in its body, or uses what it carries), with the instruction that made its data: found by a walk back through the HLO text, fused computations included. Nothing for modules without loops or without HLO text, for parameters of the program, for a buffer into which XLA puts several arrays, and where the walk ends at no line of the user''s, at no parameter with a name and in no stack. Key: module_id, value_id.';
COMMENT ON COLUMN value_origins.module_id IS 'The module; refers to modules.module_id.';
COMMENT ON COLUMN value_origins.value_id IS 'The value: values.value_id.';
COMMENT ON COLUMN value_origins.origin_kind IS
  'stacked (an array into which a loop inserts a slice per step: what a scan saves or returns), slice (one step''s slice read back from a stack, or from what is scanned), carry (what a loop hands from step to step, written there), invariant (what goes into a loop that does not write it), parameter (an entry parameter that a loop carries or that was copied into one).';
COMMENT ON COLUMN value_origins.instruction_name IS
  'The instruction that made the data; it may be fused and so in no other table. Where the walk meets no line of the user''s, the last that computes and bears one of a library''s. NULL for a stack of which neither was found, as are all columns up to stack_frame_id.';
COMMENT ON COLUMN value_origins.opcode IS 'HLO opcode of that instruction.';
COMMENT ON COLUMN value_origins.op_name IS
  'Its metadata op_name, unescaped; of a parameter the argument''s name; NULL if the metadata has none.';
COMMENT ON COLUMN value_origins.source_file IS
  'Its source file, as instructions.source_file: inline metadata, else the frame of stack_frame_id; NULL if neither is known, as of a parameter.';
COMMENT ON COLUMN value_origins.source_line IS 'Its source line, from the same place as source_file; NULL if unknown.';
COMMENT ON COLUMN value_origins.stack_frame_id IS
  'Its innermost frame (jaxlib 0.8.2 on); refers to stack_frames, whose own_frame_id is the line of the user''s; NULL if the metadata has none.';
COMMENT ON COLUMN value_origins.loop_instruction_name IS
  'The while: of a stack the one whose body inserts the slices, else the first on the walk, which carries the bytes; NULL for a slice of an array that no loop carries.';
COMMENT ON COLUMN value_origins.trip_count IS
  'How often that loop runs: known_trip_count of its backend_config; NULL if it is not printed (TPU) or not known.';
COMMENT ON COLUMN value_origins.written_by IS
  'The dynamic-update-slice that inserts a slice into the stack, which may be fused; NULL if the walk met none.';
COMMENT ON COLUMN value_origins.slice_shape IS 'Shape of what is inserted, as printed; NULL as written_by.';
COMMENT ON COLUMN value_origins.slice_bytes IS
  'One slice as the stack holds it, without padding [bytes]: slice_count of them are values.logical_bytes. Less than slice_shape tells where f32 is inserted into what is kept as bf16. NULL as slice_count.';
COMMENT ON COLUMN value_origins.slice_count IS
  'Slices in the value: elements of the stack by elements of the slice. Not trip_count where a step inserts several. NULL if the value is no stack, or another array than the stack that the walk met: a table of a tuple, a buffer into which XLA put several stacks for one all-reduce.';
COMMENT ON COLUMN value_origins.is_layer_input IS
  'Whether the walk goes on from the stack through the carry of its loop: an input of the layer, which a scan saves whatever the checkpoint policy.';
COMMENT ON COLUMN value_origins.step_count IS 'Instructions on the walk, without get-tuple-elements, which HLO texts from jaxlib 0.11 on leave out.';
COMMENT ON COLUMN value_origins.is_exact IS
  'FALSE if the walk crossed an instruction that computes and bears no line of the user''s, where it took the largest operand, or a conditional of which several branches make data, where it took the last; ended where a line is that of another: at a product that vmap turned around, at what was not the first in a collective of several; or was given up.';
