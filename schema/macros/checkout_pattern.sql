-- What is in checkouts of known libraries. One literal, on several lines: DuckDB would join parts
-- by || again wherever it is used.
CREATE OR REPLACE MACRO checkout_pattern() AS
  'MaxText/(?:__init__[.]py|common/|inference/|input_pipeline/|kernels/|layers/|models/|optimizers/|trainers/|utils/|(?:maxtext_utils|max_utils|optimizers|pyconfig|train)[.]py)|'
  'axlearn/(?:__init__[.]py|common/|experiments/)|'
  'blackjax/(?:__init__[.]py|adaptation/|mcmc/|ns/|optimizers/|sgmcmc/|smc/|vi/|(?:base|util)[.]py)|'
  'brax/(?:__init__[.]py|base[.]py|envs/|generalized/|positional/|spring/|training/)|'
  'bufdb/(?:__init__[.]py|api/|capture/|commands/|fitting/|recording/|pytest_plugin[.]py)|'
  'chex/(?:__init__[.]py|_src/)|'
  'diffrax/(?:__init__[.]py|_[a-z])|'
  'distrax/(?:__init__[.]py|_src/)|'
  'equinox/(?:__init__[.]py|_[a-z]|debug/|internal/|nn/)|'
  'flax/(?:__init__[.]py|core/|experimental/|linen/|metrics/|nnx/|(?:jax_utils|struct|traverse_util)[.]py|training/(?:common_utils|dynamic_scale|train_state)[.]py)|'
  'haiku/(?:__init__[.]py|_src/)|'
  'jax/(?:__init__[.]py|_src/|example_libraries/|experimental/|interpreters/)|'
  'jaxopt/(?:__init__[.]py|_src/)|'
  'jaxtyping/(?:__init__[.]py|_[a-z])|'
  'jmp/(?:__init__[.]py|_src/)|'
  'jraph/(?:__init__[.]py|_src/)|'
  'keras/(?:__init__[.]py|src/)|'
  'levanter/(?:__init__[.]py|layers/|main/|models/|optim/|trainer[.]py)|'
  'lineax/(?:__init__[.]py|_[a-z]|compat/|internal/)|'
  'maxtext/(?:__init__[.]py|common/|inference/|input_pipeline/|kernels/|layers/|models/|optimizers/|trainers/|utils/|(?:maxtext_utils|max_utils|optimizers|pyconfig|train)[.]py)|'
  'numpy/(?:__init__[.]py|_[a-z])|'
  'numpyro/(?:__init__[.]py|contrib/|distributions/|infer/|nn/|ops/|(?:handlers|optim|primitives|util)[.]py)|'
  'optax/(?:__init__[.]py|_src/|[a-z_]+/_[a-z_]+[.]py)|'
  'optimistix/(?:__init__[.]py|_[a-z]|compat/|internal/)|'
  'orbax/(?:__init__[.]py|checkpoint/|export/)|'
  'quax/(?:__init__[.]py|_[a-z])|'
  'rlax/(?:__init__[.]py|_src/)|'
  'scipy/(?:__init__[.]py|_[a-z])|'
  'transformers/(?:__init__[.]py|generation/|models/|modeling_)';
COMMENT ON MACRO checkout_pattern IS
  'Regular expression of a path, from the folder of a package on, in a checkout of a known library (flax, keras, equinox, …): what is in that folder, since one of the user''s may have the same name.';
