-- How each framework has a change, and which files show that a program is of it.
-- Values: bufdb/fitting/frameworks.py, which patches and notes of bufdb fit use; a test compares.
CREATE OR REPLACE VIEW framework_words AS
SELECT
  words.place, words.framework, words.folder, words.checkpoint, words.donation, words.offload,
  words.chunks, words.dtype, words.attention, words.has_settings
FROM (
  VALUES
    (
      1, 'maxtext', '/maxtext/', 'remat_policy=full', '',
      'remat_policy=custom decoder_layer_input=offload', 'num_vocab_tiling=8', 'dtype=bfloat16',
      'attention=flash (cudnn_flash_te on GPUs)', TRUE
    ),
    (
      2, 'axlearn', '/axlearn/',
      'remat_spec=RematSpec(policy=nothing_saveable) of the layer, by a RematSpecModifier in mesh_rules',
      '', 'RematSpec(policy=offload_dots_saveable_policy)', '', '', '', TRUE
    ),
    (
      3, 'levanter', '/levanter/', 'gradient_checkpointing: recompute', '',
      'gradient_checkpointing: offload', 'cross_entropy_block_size: 4096', '', '',
      TRUE
    ),
    (
      4, 'haliax', '/haliax/', 'gradient_checkpointing: recompute', '',
      'gradient_checkpointing: offload', '', '', '', TRUE
    ),
    (
      5, 'keras', '/keras/src/', 'keras.RematScope(mode="full")', 'donate_argnums', '', '',
      'keras.config.set_dtype_policy("mixed_bfloat16")',
      'keras.config.enable_flash_attention() and bf16', TRUE
    ),
    (
      6, 'haiku', '/haiku/', 'hk.remat', 'donate_argnums', 'hk.remat(policy=…)', '', '', '', FALSE
    ),
    (
      7, 'nnx', '/flax/nnx/', 'nnx.remat', 'nnx.jit(donate_argnums=…)', 'nnx.remat(policy=…)',
      '', '', '', FALSE
    ),
    (
      8, 'linen', '/flax/linen/', 'nn.remat', 'donate_argnums', 'nn.remat(policy=…)', '', '', '',
      FALSE
    ),
    (
      9, 'equinox', '/equinox/', 'eqx.filter_checkpoint',
      'eqx.filter_jit(donate="all-except-first" or "all")', 'eqx.filter_checkpoint(policy=…)',
      '', '', '', FALSE
    ),
    (
      10, 'jax', '', 'jax.checkpoint', 'donate_argnums', 'a policy', '', '', '', FALSE
    )
) AS words (
  place, framework, folder, checkpoint, donation, offload, chunks, dtype, attention, has_settings
);
COMMENT ON VIEW framework_words IS
  'One row per framework of JAX: its words for a checkpoint, a donation, host memory, a loss in chunks and an attention. Key: framework.';
COMMENT ON COLUMN framework_words.place IS 'Order of detection, from 1: what has another framework within comes before it; jax, the last, matches all.';
COMMENT ON COLUMN framework_words.framework IS 'Name of the framework.';
COMMENT ON COLUMN framework_words.folder IS 'Folder that the lower-case path of a file of it has, in a call stack of the program; empty for jax.';
COMMENT ON COLUMN framework_words.checkpoint IS 'What computes a layer again.';
COMMENT ON COLUMN framework_words.donation IS 'What donates arguments; empty if the framework does by itself.';
COMMENT ON COLUMN framework_words.offload IS 'What keeps values in host memory; empty if there is none.';
COMMENT ON COLUMN framework_words.chunks IS 'Setting that computes the loss in chunks; empty if there is none.';
COMMENT ON COLUMN framework_words.dtype IS 'Setting that makes the values of layers bf16; empty if there is none.';
COMMENT ON COLUMN framework_words.attention IS 'Setting of an attention that never holds all scores; empty if there is none.';
COMMENT ON COLUMN framework_words.has_settings IS 'Whether the layers are in its own files: the user changes a setting, not code.';
