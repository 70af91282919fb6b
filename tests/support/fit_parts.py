"""Small programs with a batch and a wide loss: forms that `bufdb fit --also` takes or refuses."""

from functools import partial

import jax
import jax.numpy as jnp

B, S, D, V, N = 8, 4, 8, 64, 2


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def args(batch=B, length=S, vocabulary=V):
    params = {
        "embed": shape(vocabulary, D), "head": shape(D, vocabulary),
        "layers": {"up": shape(N, D, 2 * D), "down": shape(N, 2 * D, D)},
    }  # fmt: skip
    tokens = shape(batch, length, dtype=jnp.int32)
    return params, tokens, tokens


def layer(x, p):
    return x + jnp.tanh(x @ p["up"]) @ p["down"], None


def hidden(params, tokens):
    return jax.lax.scan(layer, params["embed"][tokens], params["layers"])[0]


def each(params, tokens, labels):
    logits = hidden(params, tokens) @ params["head"]
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, labels[..., None], axis=-1)[..., 0]


def updated(params, grads):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


# -- taken: means over the batch -------------------------------------------------------------------


def mean(params, tokens, labels):
    return each(params, tokens, labels).mean()


def step(params, tokens, labels):
    value, grads = jax.value_and_grad(mean)(params, tokens, labels)
    return value, updated(params, grads)


def step_closure(params, tokens, labels):
    def own(params):
        losses = each(params, tokens, labels)
        return losses.mean(), (losses, losses.max(axis=1).mean())

    (value, aux), grads = jax.value_and_grad(own, has_aux=True)(params)
    return value, aux, updated(params, grads)


@jax.jit
def step_jitted(params, tokens, labels):
    return jax.jit(jax.grad(mean))(params, tokens, labels)


@partial(jax.jit, static_argnames="rate")
def step_items(state, batch, rate=0.1):
    take = jax.value_and_grad(mean)
    value, grads = take(state["params"], batch["tokens"], batch["labels"])
    return value, jax.tree.map(lambda p, g: p - rate * g, state["params"], grads)


def one_hot(params, tokens, labels):
    logits = jnp.einsum("bsd,dv->bsv", hidden(params, tokens), params["head"])
    wide = jax.nn.one_hot(labels, logits.shape[-1]) * jax.nn.log_softmax(logits)
    return -wide.sum() / labels.size


def step_one_hot(params, tokens, labels):
    return jax.grad(one_hot)(params, tokens, labels)


def flat_tokens(params, tokens, labels):
    x = hidden(params, tokens).reshape(-1, D)
    logits = x @ params["head"]
    rows = jnp.arange(labels.size)
    return (jax.nn.logsumexp(logits, axis=-1) - logits[rows, labels.reshape(-1)]).mean()


def step_flat(params, tokens, labels):
    return jax.grad(flat_tokens)(params, tokens, labels)


def shifted(params, tokens, labels):
    logits = (hidden(params, tokens) @ params["head"])[:, :-1].astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, 1:, None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def step_shifted(params, tokens, labels):
    return jax.grad(shifted)(params, tokens, labels)


# -- refused ---------------------------------------------------------------------------------------


def step_sum(params, tokens, labels):
    return jax.grad(lambda p: each(p, tokens, labels).sum())(params)


def masked(params, tokens, labels):
    mask = (labels > 0).astype(jnp.float32)
    return (each(params, tokens, labels) * mask).sum() / mask.sum()


def step_masked(params, tokens, labels):
    return jax.grad(masked)(params, tokens, labels)


def padded(params, tokens, labels):
    mask = labels != -100
    losses = each(params, tokens, jnp.where(mask, labels, 0))
    return jnp.where(mask, losses, 0).sum() / mask.sum()


def step_padded(params, tokens, labels):
    return jax.grad(padded)(params, tokens, labels)


def centered(params, tokens, labels):
    x = hidden(params, tokens)
    return ((x - x.mean(axis=0)) ** 2).mean()


def step_centered(params, tokens, labels):
    return jax.grad(centered)(params, tokens, labels)


def across(params, tokens, labels):
    logits = hidden(params, tokens) @ params["head"]
    return jax.nn.logsumexp(logits, axis=(0, 2)).mean()


def step_across(params, tokens, labels):
    return jax.grad(across)(params, tokens, labels)


def step_logits(params, tokens, labels):
    def own(params):
        logits = hidden(params, tokens) @ params["head"]
        return jax.nn.logsumexp(logits, axis=-1).mean(), logits

    return jax.grad(own, has_aux=True)(params)


# -- metrics of the logits -------------------------------------------------------------------------


def measured(params, tokens, labels):
    """Return a mean, and metrics that are means, sums, counts and more, as a dict."""
    logits = hidden(params, tokens) @ params["head"]
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)[..., 0]
    hits = logits.argmax(-1) == labels
    return losses.mean(), {
        "loss": losses.sum(), "accuracy": hits.mean(), "hits": hits.sum(), "count": labels.size,
        "tokens": jnp.float32(labels.size), "z": (jax.nn.logsumexp(logits, -1) ** 2).mean(),
        "size": jnp.abs(logits).mean(), "classes": logits.shape[-1],
    }  # fmt: skip


def step_measured(params, tokens, labels):
    (value, metrics), grads = jax.value_and_grad(measured, has_aux=True)(params, tokens, labels)
    return value, metrics, updated(params, grads)


def scaled(params, tokens, labels):
    """Divide each token by their number before the sum; return metrics as a tuple."""
    logits = hidden(params, tokens) @ params["head"]
    wide = jax.nn.one_hot(labels, logits.shape[-1]) * jax.nn.log_softmax(logits) / labels.size
    return -wide.sum(), ((logits.argmax(-1) == labels).sum() / labels.size, logits.max())


def step_scaled(params, tokens, labels):
    return jax.grad(scaled, has_aux=True)(params, tokens, labels)


def rooted(params, tokens, labels):
    loss = each(params, tokens, labels).mean()
    return loss, {"perplexity": jnp.exp(loss)}


def step_rooted(params, tokens, labels):
    return jax.grad(rooted, has_aux=True)(params, tokens, labels)


def ranked(params, tokens, labels):
    return each(params, tokens, labels).mean(), {"largest": tokens.max()}


def step_ranked(params, tokens, labels):
    return jax.grad(ranked, has_aux=True)(params, tokens, labels)


def leaking(params, tokens, labels):
    logits = (hidden(params, tokens) @ params["head"]).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean(), {"logits": logits}  # leaves


@jax.jit
def step_leaking(params, tokens, labels):
    take = jax.value_and_grad(leaking, has_aux=True)
    (value, aux), grads = take(params, tokens, labels)
    hits = jnp.argmax(aux["logits"], axis=-1) == labels  # reads
    return value, hits.mean(), updated(params, grads)
