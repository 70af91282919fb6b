-- The jitted functions around an operation.
CREATE OR REPLACE MACRO jit_path(op_name) AS
  nullif(
    array_to_string(
      regexp_extract_all(
        op_path(op_name), '(?:^|[/(])(?:p?jit|pmap)[(]([^()/]*(?:[(][^()/]*[)][^()/]*)*)[)]', 1
      ),
      '/'
    ),
    ''
  );
COMMENT ON MACRO jit_path IS
  'Jitted functions that an op_name is in, outermost first: jit(step)/jit(_where)/select_n gives step/_where; NULL if there is none.';
