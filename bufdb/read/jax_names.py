"""Names that JAX writes into op_names, which a new JAX may change: each that bufdb knows.

The macro `jax_names` in `schema/` has those that SQL needs; a test compares the two.
"""

TRANSFORMS = ("jvp", "transpose", "vmap", "linearize")
"""Around a scope: transpose(jvp(Decoder)), jvp()."""
FUNCTIONS = ("p?jit", "pmap", "xla_call", "xla_pmap", "core_call", "remat", "checkpoint")
"""Expressions for what is around the name of a function that is called: jit(f), older remat(f)."""
LOOP, LOOP_PARTS = "while", ("body", "cond")
CHOICE, BRANCH = "cond", "branch_[0-9]+_fun"
SCAN_STEPS = ("closed_call", "eval_jaxpr")
"""What the body of a scan calls for the user's step: through jax 0.10, from 0.11 on."""
RECOMPUTED = "rematted_computation"
CHECKPOINTS = ("checkpoint", "remat", RECOMPUTED)
CALLS = (
    *("core_call", "shard_map"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)
"""Other elements without the name of a function, that only say how code is called."""
SLICED = ("dynamic_index_in_dim", "dynamic_update_index_in_dim")
"""Functions with which a scan takes a slice of what it is given, and inserts one of its results."""
SUM = "add_any"
"""Ends the op_name of a sum of gradients."""
NAMED = "reduce_precision"
"""Ends the op_name of what remains of checkpoint_name."""
TURNED = "transpose"
"""Ends the op_name of a move of vmap's batch axis."""
COLLECTIVES = (
    *("all_gather", "all_gather_invariant", "all_to_all", "ppermute", "psum", "psum_invariant"),
    "reduce_scatter",
)
"""End the op_names of collectives that the user wrote."""
GRADIENT, BACKWARD = "jvp(", "transpose("
"""Begin the scope of an operation of a gradient, and what its backward pass has around that."""
_GRADIENT, _BACKWARD = GRADIENT.encode(), BACKWARD.encode()


def is_backward(op_name: bytes) -> bool:
    """Return whether an op_name is of the backward pass, what that computes again included."""
    return _BACKWARD in op_name


def is_forward(op_name: bytes) -> bool:
    """Return whether an op_name is of the forward pass of a gradient."""
    return _GRADIENT in op_name and _BACKWARD not in op_name
