-- The jitted function that an op_name begins with.
CREATE OR REPLACE MACRO jit_function(op_name) AS
  nullif(regexp_extract(op_name, '^p?jit[(]([^()]*(?:[(][^()]*[)][^()]*)*)[)]', 1), '');
COMMENT ON MACRO jit_function IS
  'Outermost jitted function of an op_name ("jit(f)/layer/dot" gives f); NULL if it has none.';
