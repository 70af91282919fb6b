-- The jitted functions in a scope path.
CREATE OR REPLACE MACRO jit_names(path) AS
  nullif(
    array_to_string(
      regexp_extract_all(
        path, '(?:^|[/(])(?:p?jit|pmap)[(]([^()/]*(?:[(][^()/]*[)][^()/]*)*)[)]', 1
      ),
      '/'
    ),
    ''
  );
COMMENT ON MACRO jit_names IS
  'Jitted functions that an op_path names, outermost first: jit(step)/jit(_where)/select_n gives step/_where; NULL if there is none.';
