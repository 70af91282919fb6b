-- The jitted functions around an operation.
CREATE OR REPLACE MACRO jit_path(op_name) AS
  jit_names(op_path(op_name));
COMMENT ON MACRO jit_path IS
  'Jitted functions that an op_name is in, outermost first: jit(step)/jit(_where)/select_n gives step/_where; NULL if there is none.';
