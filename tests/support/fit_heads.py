"""Losses over a vocabulary as programs write them: what `--also chunks` edits, or leaves alone."""

import jax
import jax.numpy as jnp
import numpy as np

B, S, D, V = 16, 4, 8, 64


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def args():
    params = {"embed": shape(V, D), "head": shape(D, V), "bias": shape(V), "up": shape(D, D)}
    tokens = shape(B, S, dtype=jnp.int32)
    return params, {"tokens": tokens, "labels": tokens}


def numbers(args):
    """Return random numbers for shapes."""
    draw = np.random.default_rng(1)

    def array(one):
        if one.dtype == np.int32:
            return jnp.asarray(draw.integers(0, V, one.shape), one.dtype)
        return jnp.asarray(draw.normal(0, 0.5, one.shape), one.dtype)

    return jax.tree.map(array, args)


def hidden(params, tokens):
    return jnp.tanh(params["embed"][tokens] @ params["up"])


def picked(logits, labels):
    """Return one of each token, as a library does."""
    logits -= jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    own = jnp.take_along_axis(logits, labels[..., None], axis=-1).squeeze(-1)
    return jnp.log(jnp.exp(logits).sum(axis=-1)) - own


def mean_of(logits, labels):
    return jnp.mean(picked(logits.astype(jnp.float32), labels))


# -- edited ----------------------------------------------------------------------------------------


def masked(params, batch):
    x = hidden(params, batch["tokens"])
    logits = x @ params["head"] + params["bias"]
    mask = (batch["labels"] != 0).astype(jnp.float32)
    losses = picked(logits, batch["labels"])
    return jnp.sum(losses * mask) / jnp.sum(mask)


def layered(params, batch):
    """Layers that are written out, before the logits."""
    x = params["embed"][batch["tokens"]]
    for _ in range(6):
        h = jnp.sin(jnp.tanh(x @ params["up"]))
        x = x + h * jnp.cos(h)
    logits = x @ params["head"]
    return mean_of(logits, batch["labels"])


def tied(params, batch):
    """Return a loss with a z loss, and metrics."""
    tokens, labels = batch["tokens"], batch["labels"]
    x = hidden(params, tokens)
    # Logits of the tied table.
    logits = jnp.einsum(
        "bsd,vd->bsv",
        x,
        params["embed"],
    )
    z = jax.nn.logsumexp(logits, axis=-1)
    ce = z - jnp.take_along_axis(logits, labels[..., None], axis=-1).squeeze(-1)
    loss = ce.mean() + 1e-4 * (z**2).mean()  # with a z loss
    hits = logits.argmax(-1) == labels
    return loss, {"accuracy": hits.mean(), "hits": jnp.sum(hits), "ce": ce.mean()}


def helped(params, batch):
    logits = jnp.dot(hidden(params, batch["tokens"]), params["head"])
    return mean_of(logits, batch["labels"])


def summed(params, batch):
    with jax.named_scope("head"):
        logits = hidden(params, batch["tokens"]) @ params["head"]
        wide = jax.nn.one_hot(batch["labels"], V) * jax.nn.log_softmax(logits)
        loss = -wide.sum() / batch["labels"].size
        largest = logits.max()
    return loss, largest


def in_one(params, batch):
    return picked(
        hidden(params, batch["tokens"]) @ params["head"],
        batch["labels"],
    ).mean()


def shifted(params, batch):
    x = hidden(params, batch["tokens"])
    x = x[:, :-1] @ params["head"]
    targets = batch["tokens"][:, 1:]
    nll = -jnp.take_along_axis(jax.nn.log_softmax(x, -1), targets[..., None], -1)[..., 0]
    weights = jnp.where(targets > 0, 1.0, 0.0)
    return (nll * weights).sum() / jnp.maximum(weights.sum(), 1.0)


def flat(params, batch):
    h = hidden(params, batch["tokens"]).reshape(-1, D)
    logits = h @ params["head"]
    rows = jnp.arange(logits.shape[0])
    return (jax.nn.logsumexp(logits, axis=-1) - logits[rows, batch["labels"].reshape(-1)]).mean()


def weighted_sum(logits, labels):
    """Return a sum, and what it is to be divided by."""
    weights = jnp.where(labels > 0, 1.0, 0.0)
    return (picked(logits, labels) * weights).sum(), weights.sum()


def weighted(params, batch):
    logits = hidden(params, batch["tokens"]) @ params["head"]
    total, norm = weighted_sum(logits, batch["labels"])
    return total / norm


def with_default(params, batch, weights=None):
    logits = hidden(params, batch["tokens"]) @ params["head"]
    losses = picked(logits, batch["labels"])
    if weights is not None:
        losses = losses * weights
    return losses.mean()


def of_examples(params, batch):
    """Scale by a number of the batch, after the wide value."""
    count = batch["labels"].shape[0]
    logits = hidden(params, batch["tokens"]) @ params["head"]
    return picked(logits, batch["labels"]).sum() / count


def forward(params, tokens, *, scale=1.0):
    """Return logits."""
    x = hidden(params, tokens)
    logits = x @ params["head"]
    return scale * logits


def of_forward(params, batch):
    logits = forward(params, batch["tokens"], scale=0.5)
    return picked(logits, batch["labels"]).mean()


# -- left alone ------------------------------------------------------------------------------------


@jax.jit
def jitted(params, tokens):
    return hidden(params, tokens) @ params["head"]


def of_jitted(params, batch):
    logits = jitted(params, batch["tokens"])
    return picked(logits, batch["labels"]).mean()


def compact(function):
    return function


@compact
def decorated(params, tokens):
    return hidden(params, tokens) @ params["head"]


def of_decorated(params, batch):
    logits = decorated(params, batch["tokens"])
    return picked(logits, batch["labels"]).mean()


def of_library(params, batch):
    logits = jax.vmap(forward, (None, 0))(params, batch["tokens"])
    return picked(logits, batch["labels"]).mean()


def scaled(params, batch):
    logits = hidden(params, batch["tokens"]) @ params["head"]
    wide = jax.nn.one_hot(batch["labels"], V) * jax.nn.log_softmax(logits) / batch["labels"].size
    return -wide.sum()


def shaped(params, batch):
    logits = hidden(params, batch["tokens"]) @ params["head"]
    return picked(logits, batch["labels"]).mean() / logits.shape[-1]


def looped(params, batch):
    total = 0.0
    for scale in (1.0, 2.0):
        logits = scale * hidden(params, batch["tokens"]) @ params["head"]
        total += picked(logits, batch["labels"]).mean()
    return total


def sized(params, batch):
    count = batch["labels"].shape[0]
    logits = hidden(params, batch["tokens"]) @ params["head"]
    losses = picked(logits, batch["labels"]) / count
    return losses.sum() + jax.nn.logsumexp(logits / count, axis=-1).mean()


def step_of(loss, has_aux=False):
    def step(params, batch):
        return jax.value_and_grad(loss, has_aux=has_aux)(params, batch)

    return step
