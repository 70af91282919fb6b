-- Names that JAX writes into op_names, as regular expressions.
CREATE OR REPLACE MACRO jax_names(kind) AS
  CASE kind
    WHEN 'transforms' THEN 'jvp|transpose|vmap|linearize'
    WHEN 'functions' THEN 'p?jit|pmap|xla_call|xla_pmap|core_call|remat|checkpoint'
    WHEN 'words'
      THEN 'while|checkpoint|remat|rematted_computation|closed_call|eval_jaxpr|core_call|shard_map'
        || '|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr'
    WHEN 'loop' THEN 'while'
    WHEN 'loop_parts' THEN 'body|cond'
    WHEN 'choice' THEN 'cond'
    WHEN 'branch' THEN 'branch_[0-9]+_fun'
    WHEN 'recomputed' THEN 'rematted_computation'
    WHEN 'gradient' THEN 'jvp[(]'
    WHEN 'backward' THEN 'transpose[(]'
  END;
COMMENT ON MACRO jax_names IS
  'Names that JAX writes into op_names and that a new JAX may change, as a regular expression for each kind: transforms around a scope, functions around the name of what is called, words that only say how code is called, loop and loop_parts, choice (a conditional) and branch, recomputed by a checkpoint, gradient and backward (in the op_names of a gradient, and of its backward pass). As bufdb.read.jax_names.';
