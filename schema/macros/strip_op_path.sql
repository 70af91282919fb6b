-- Scope paths as the user wrote them. The names of JAX are those of jax_names, in the patterns
-- themselves: to join them takes DuckDB longer than most of a query, wherever this is used.
CREATE OR REPLACE MACRO strip_op_path(path) AS
  -- Each element except the last gets its own "/" on both sides, so that all match separately. The
  -- last one is the operation, even if it is a while or a jit(f), and stays unchanged.
  ltrim(
    replace(
      regexp_replace(
        regexp_replace(
          regexp_replace(
            regexp_replace(
              regexp_replace(
                replace('/' || path, '/', '//'),
                -- The scope around a checkpoint is in its gradient twice.
                '/transpose[(]jvp[(][^/]*/(/jvp[(][^/]*/)',
                '\1',
                'g'
              ),
              -- Calls that name a function: jit(f), jvp(jit(f)), older remat(core).
              '/(?:(?:jvp|transpose|vmap|linearize)[(])*'
                '(?:p?jit|pmap|xla_call|xla_pmap|core_call|remat|checkpoint)[(][^/]*/',
              '',
              'g'
            ),
            -- Loops and conditionals with the part of them that follows.
            '/(?:(?:jvp|transpose|vmap|linearize)[(])*while[)]*//(?:body|cond)/'
              '|/(?:(?:jvp|transpose|vmap|linearize)[(])*cond[)]*//branch_[0-9]+_fun/',
            '',
            'g'
          ),
          -- Transforms without a scope, and words that only say how code is called.
          '/(?:(?:jvp|transpose|vmap|linearize)[(])+[)]+/'
            '|/(?:(?:jvp|transpose|vmap|linearize)[(])*'
            '(?:while|checkpoint|remat|rematted_computation|closed_call|eval_jaxpr|core_call'
            '|shard_map|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr)[)]*/',
          '',
          'g'
        ),
        -- A transform of a scope: transpose(jvp(Decoder)) gives Decoder.
        '/(?:(?:jvp|transpose|vmap|linearize)[(])+([^()/]*)[)]+/',
        '/\1/',
        'g'
      ),
      '//', '/'
    ),
    '/'
  );
COMMENT ON MACRO strip_op_path IS
  'An op_path without the elements that JAX adds above the operation: jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, remat, closed_call, shard_map, and jvp(), transpose(), vmap() around a user''s scope. The user''s scopes and the operation remain.';
