-- The Python function that a program of JAX is named for.
CREATE OR REPLACE MACRO python_name(program_name) AS
  regexp_replace(program_name, '^p?jit_', '');
COMMENT ON MACRO python_name IS
  'Function that a program as the runtime names it was made of: step for jit_step and pjit_step; the name itself where it begins otherwise. modules.function_name has that of a dump.';
