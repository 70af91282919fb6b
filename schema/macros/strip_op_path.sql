-- Scope paths as the user wrote them.
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
                '/' || jax_names('backward') || jax_names('gradient')
                  || '[^/]*/(/' || jax_names('gradient') || '[^/]*/)',
                '\1',
                'g'
              ),
              -- Calls that name a function: jit(f), jvp(jit(f)), older remat(core).
              '/(?:(?:' || jax_names('transforms') || ')[(])*'
                || '(?:' || jax_names('functions') || ')[(][^/]*/',
              '',
              'g'
            ),
            -- Loops and conditionals with the part of them that follows.
            '/(?:(?:' || jax_names('transforms') || ')[(])*' || jax_names('loop')
              || '[)]*//(?:' || jax_names('loop_parts') || ')/'
              || '|/(?:(?:' || jax_names('transforms') || ')[(])*' || jax_names('choice')
              || '[)]*//' || jax_names('branch') || '/',
            '',
            'g'
          ),
          -- Transforms without a scope, and words that only say how code is called.
          '/(?:(?:' || jax_names('transforms') || ')[(])+[)]+/'
            || '|/(?:(?:' || jax_names('transforms') || ')[(])*'
            || '(?:' || jax_names('words') || ')[)]*/',
          '',
          'g'
        ),
        -- A transform of a scope: transpose(jvp(Decoder)) gives Decoder.
        '/(?:(?:' || jax_names('transforms') || ')[(])+([^()/]*)[)]+/',
        '/\1/',
        'g'
      ),
      '//', '/'
    ),
    '/'
  );
COMMENT ON MACRO strip_op_path IS
  'An op_path without the elements that JAX adds above the operation: jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, remat, closed_call, shard_map, and jvp(), transpose(), vmap() around a user''s scope. The user''s scopes and the operation remain.';
