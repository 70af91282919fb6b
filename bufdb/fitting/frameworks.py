"""How each framework has a change: a row per framework, for patches, notes and advice alike.

The view `framework_words` has the same rows for advice; a test compares them. Proved by compiling:
jax, equinox, nnx, linen, and by hand haiku and keras (`tests/fitting/test_jax_frameworks.py`).
Settings are read of public files, not run:

    maxtext     src/maxtext/configs/base.yml of the package 0.2.5
    keras       keras/src/backend/config.py of the package 3.15.1, for attention
    axlearn     axlearn/common/trainer_config_modifier.py, axlearn/experiments/text/gpt/fuji.py
    levanter    src/levanter/models/llama.py, and haliax' ScanCheckpointPolicy.from_bool_or_str
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """The words of a framework for a change of what its programs hold."""

    name: str
    folder: str
    """What the lower-case path of a file of it has."""
    checkpoint: str
    donation: str
    offload: str
    chunks: str
    dtype: str
    attention: str = ""
    """What never holds all scores of an attention."""
    has_settings: bool = False
    """Whether the layers are in its files: the user changes a setting, not the code."""


FRAMEWORKS = (
    Framework(
        "maxtext", "/maxtext/", "remat_policy=full", "", "remat_policy=custom "
        "decoder_layer_input=offload", "num_vocab_tiling=8", "dtype=bfloat16",
        "attention=flash (cudnn_flash_te on GPUs)", has_settings=True,
    ),
    Framework(
        "axlearn", "/axlearn/", "remat_spec=RematSpec(policy=nothing_saveable) of the layer, by a "
        "RematSpecModifier in mesh_rules", "", "RematSpec(policy=offload_dots_saveable_policy)",
        "", "", has_settings=True,
    ),
    Framework(
        "levanter", "/levanter/", "gradient_checkpointing: recompute", "",
        "gradient_checkpointing: offload", "cross_entropy_block_size: 4096", "", has_settings=True,
    ),
    Framework(
        "haliax", "/haliax/", "gradient_checkpointing: recompute", "",
        "gradient_checkpointing: offload", "", "", has_settings=True,
    ),
    Framework(
        "keras", "/keras/src/", 'keras.RematScope(mode="full")', "donate_argnums", "", "",
        'keras.config.set_dtype_policy("mixed_bfloat16")',
        "keras.config.enable_flash_attention() and bf16", has_settings=True,
    ),
    Framework("haiku", "/haiku/", "hk.remat", "donate_argnums", "hk.remat(policy=…)", "", ""),
    Framework(
        "nnx", "/flax/nnx/", "nnx.remat", "nnx.jit(donate_argnums=…)", "nnx.remat(policy=…)", "",
        "",
    ),
    Framework(
        "linen", "/flax/linen/", "nn.remat", "donate_argnums", "nn.remat(policy=…)", "", "",
    ),
    Framework(
        "equinox", "/equinox/", "eqx.filter_checkpoint",
        'eqx.filter_jit(donate="all-except-first" or "all")', "eqx.filter_checkpoint(policy=…)",
        "", "",
    ),
    Framework("jax", "", "jax.checkpoint", "donate_argnums", "a policy", "", ""),
)  # fmt: skip
"""In the order of detection: what has another one within comes before it."""
JAX = FRAMEWORKS[-1]


def of_file(path: str) -> Framework:
    """Return the framework that a file is of; that of JAX itself if none."""
    return next(one for one in FRAMEWORKS if one.folder in path.lower())


def named(name: str) -> Framework:
    """Return the framework of a name; that of JAX itself if there is none."""
    return next((one for one in FRAMEWORKS if one.name == name), JAX)


def setting_words(one: Framework, *, has_host_memory: bool) -> str:
    """Return in words what to set where the layers of a program are a framework's own."""
    words = [f"computes its layers again with {one.checkpoint}"]
    if one.offload and has_host_memory:
        words.append(f"keeps their inputs in host memory with {one.offload}")
    if one.chunks:
        words.append(f"computes the loss in chunks with {one.chunks}")
    return f"the layers are {one.name}'s, which {', '.join(words)}"
