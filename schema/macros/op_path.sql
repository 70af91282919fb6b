-- Scope paths in one form for all versions of JAX.
CREATE OR REPLACE MACRO op_path(op_name) AS
  CASE
    WHEN regexp_matches(op_name, '^[A-Za-z_][A-Za-z0-9_]*([[][''0-9-]|[.][A-Za-z_])')
      -- An argument: opt_state[0].mu['w'] gives opt_state/0/mu/w.
      THEN rtrim(
        regexp_replace(
          regexp_replace(op_name, '[[]''?|''?[]]', '/', 'g'), '/+[.]?|[.]', '/', 'g'
        ),
        '/'
      )
    ELSE
      regexp_replace(
        -- The first of several fused names (a;b) and of names merged by a collective, prefix/(a:b).
        regexp_replace(
          split_part(op_name, ';', 1), '/[(]([^:]*):.*[)]$', '/\1'
        ),
        -- Parameters of the primitive, through jax 0.4.31, and the function name before jax 0.7.
        '[[][a-z_]+=.*$|/jit[(]main[)]', '', 'g'
      )
  END;
COMMENT ON MACRO op_path IS
  'Scope path of an op_name with elements separated by "/", ending with the primitive: without the primitive parameters and jit(main) of older JAX, and only the first of several merged names; an argument such as opt_state[0].mu[''w''] gives opt_state/0/mu/w.';
