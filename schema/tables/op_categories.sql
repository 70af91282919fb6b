-- One row per rule that assigns an op_name to a phase of a training step. Rules are data to edit. Key: rule_order.
CREATE TABLE op_categories (
  rule_order BIGINT NOT NULL,
  op_glob VARCHAR NOT NULL,
  module_glob VARCHAR,
  category VARCHAR
);
COMMENT ON TABLE op_categories IS
  'One row per rule that assigns an op_name to a phase of a training step; the first rule that matches wins (op_name_categories). Rules are data: INSERT, UPDATE and DELETE as your model needs. Key: rule_order.';
COMMENT ON COLUMN op_categories.rule_order IS
  'Order of the rule; the lowest that matches wins.';
COMMENT ON COLUMN op_categories.op_glob IS
  'Glob that the whole op_name must match, case-sensitive; [[] matches a bracket.';
COMMENT ON COLUMN op_categories.module_glob IS
  'Glob that some op_name of the same module must also match; NULL for no such condition.';
COMMENT ON COLUMN op_categories.category IS
  'Category of what the rule matches: forward, backward, rematerialized, optimizer or a word of yours; NULL for unknown: no later rule applies.';
INSERT INTO op_categories VALUES
  -- Recomputed by jax.checkpoint; its gradient is in the same checkpoint scope, but not below
  -- rematted_computation.
  (10, '*/rematted_computation/*', NULL, 'rematerialized'),
  -- The same in jax before 0.4.16, where the gradient has this scope too and is counted here.
  (20, '*transpose(*/remat/*', NULL, 'rematerialized'),
  -- Reverse mode: jax, then TensorFlow 2 and 1.
  (30, '*transpose(*', NULL, 'backward'),
  (31, '*gradient_tape/*', NULL, 'backward'),
  (32, '*gradients/*', NULL, 'backward'),
  -- Differentiated, outside of the transposed part.
  (40, '*jvp(*', NULL, 'forward'),
  -- Names used by optimizers: arguments such as opt_state[0].mu['w'], scopes and functions.
  (50, '*opt_state*', NULL, 'optimizer'),
  (51, '*[Oo]ptimizer*', NULL, 'optimizer'),
  (52, '*[Aa]dam*', NULL, 'optimizer'),
  (53, '*tree_bias_correction*', NULL, 'optimizer'),
  -- Through jax 0.6 the forward and backward passes leave no trace outside of a scope or a loop.
  (80, 'jit(*)/jit(main)/*', '*transpose(*', NULL),
  -- The rest of a jitted function that takes a gradient is mostly the update of the parameters.
  (90, '*jit(*/*', '*transpose(*', 'optimizer'),
  -- The rest of a jitted function that takes none.
  (91, '*jit(*/*', NULL, 'forward');
