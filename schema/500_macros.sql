-- Macros for paths and names; views and queries share them.
CREATE OR REPLACE MACRO is_library_path(path) AS
  regexp_matches(path, '(^|/)(site-packages|dist-packages)/|/lib/python[0-9.]+/|^<frozen');
COMMENT ON MACRO is_library_path IS
  'Whether a source file belongs to an installed package or to Python itself, not to the user.';

CREATE OR REPLACE MACRO jit_function(op_name) AS
  nullif(regexp_extract(op_name, '^p?jit[(]([^()]*(?:[(][^()]*[)][^()]*)*)[)]', 1), '');
COMMENT ON MACRO jit_function IS
  'Outermost jitted function of an op_name ("jit(f)/layer/dot" gives f); NULL if it has none.';
