-- Macros that take a JAX op_name apart, whichever version of JAX wrote it.
CREATE OR REPLACE MACRO base_name(path) AS
  regexp_extract(path, '[^/]*$');
COMMENT ON MACRO base_name IS 'Last element of a path.';

CREATE OR REPLACE MACRO op_path(op_name) AS
  CASE
    WHEN regexp_matches(op_name, '^[A-Za-z_][A-Za-z0-9_]*([[][''0-9-]|[.][A-Za-z_])')
      -- An argument: opt_state[0].mu['w'] gives opt_state/0/mu/w.
      THEN regexp_replace(
        regexp_replace(op_name, '[[]''?|''?[]]', '/', 'g'), '/+[.]?|[.]', '/', 'g'
      ).rtrim('/')
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

CREATE OR REPLACE MACRO strip_op_path(path) AS
  -- Each element but the last gets a "/" of its own on both sides, so that neighbours match apart.
  -- The last one stays as it is: it is the operation, even where it is a while or a jit(f).
  ltrim(
    replace(
      regexp_replace(
        regexp_replace(
          regexp_replace(
            regexp_replace(
              regexp_replace(
                replace('/' || regexp_replace(path, '[^/]*$', ''), '/', '//'),
                -- The scope around a checkpoint stands twice in its gradient.
                '/transpose[(]jvp[(][^/]*//jvp[(]',
                '/jvp(',
                'g'
              ),
              -- Calls that name a function: jit(f), jvp(jit(f)), remat(core) of old.
              '/(?:(?:jvp|transpose|vmap|linearize)[(])*'
                || '(?:p?jit|pmap|xla_call|xla_pmap|core_call|remat|checkpoint)[(][^/]*/',
              '',
              'g'
            ),
            -- Loops and conditionals with the part of them that follows.
            '/(?:(?:jvp|transpose|vmap|linearize)[(])*while[)]*//(?:body|cond)/'
              || '|/(?:(?:jvp|transpose|vmap|linearize)[(])*cond[)]*//branch_[0-9]+_fun/',
            '',
            'g'
          ),
          -- Transforms of nothing, and words that only say how code is called.
          '/(?:(?:jvp|transpose|vmap|linearize)[(])+[)]+/'
            || '|/(?:(?:jvp|transpose|vmap|linearize)[(])*'
            || '(?:while|checkpoint|remat|rematted_computation|closed_call|core_call|eval_jaxpr'
            || '|shard_map|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr)[)]*/',
          '',
          'g'
        ),
        -- A transform of a scope: transpose(jvp(Decoder)) gives Decoder.
        '/(?:(?:jvp|transpose|vmap|linearize)[(])+([^()/]*)[)]+/',
        '/\1/',
        'g'
      ),
      '//', '/'
    ) || base_name(path),
    '/'
  );
COMMENT ON MACRO strip_op_path IS
  'An op_path without the elements that JAX adds above the operation: jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, remat, closed_call, shard_map, and jvp(), transpose(), vmap() around a scope of the user. What remains is the user''s scopes and the operation.';

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
  'Jitted functions that an op_name lies in, outermost first: jit(step)/jit(_where)/select_n gives step/_where; NULL if there is none.';
