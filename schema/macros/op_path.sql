-- Scope paths in one spelling, whichever version of JAX wrote them.
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
        -- Of several fused names (a;b) and of names merged by a collective, prefix/(a:b), the first.
        regexp_replace(
          split_part(op_name, ';', 1), '/[(]([^:]*):.*[)]$', '/\1'
        ),
        -- Parameters of the primitive, to jax 0.4.31, and the function name of jax before 0.7.
        '[[][a-z_]+=.*$|/jit[(]main[)]', '', 'g'
      )
  END;
COMMENT ON MACRO op_path IS
  'Scope path of an op_name with elements divided by "/", its last the primitive: without primitive parameters and jit(main) of older JAX, the first of several merged names; an argument such as opt_state[0].mu[''w''] gives opt_state/0/mu/w.';
