"""Losses of models of flax.linen whose logits are made in a module: `--also chunks` edits them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from fit_heads import V, numbers, picked, shape, step_of

__all__ = ["V", "numbers", "step_of"]
B, S, D = 16, 4, 8


class Direct(nn.Module):
    @nn.compact
    def __call__(self, tokens, train=True):
        x = nn.Dense(D)(nn.Embed(V, D)(tokens))
        return nn.Dense(V)(nn.LayerNorm()(x))


class Tied(nn.Module):
    """What it computes after the wide value stays where it is."""

    @nn.compact
    def __call__(self, tokens, train=True):
        embed = nn.Embed(V, D, name="table")
        x = Trunk(name="trunk")(embed(tokens))
        logits = embed.attend(x.astype(jnp.bfloat16)).astype(jnp.float32)
        return logits / jnp.sqrt(x.shape[-1])


class Trunk(nn.Module):
    @nn.compact
    def __call__(self, x):
        return jnp.tanh(nn.Dense(D)(x))


class Nested(nn.Module):
    def setup(self):
        self.inner = Direct()

    def __call__(self, tokens, train=True):
        return self.inner(tokens, train=train)


class Both(nn.Module):
    """The logits take what is before them twice."""

    @nn.compact
    def __call__(self, tokens, train=True):
        x = jnp.tanh(nn.Dense(D)(nn.Embed(V, D)(tokens)))
        return nn.Dense(V)(x) - x.mean(-1, keepdims=True)


def shapes(model):
    tokens = shape(B, S, dtype=jnp.int32)
    return jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]


def args(name):
    tokens = shape(B, S, dtype=jnp.int32)
    return shapes(MODELS[name]), {"tokens": tokens, "labels": tokens}


MODELS = {"direct": Direct(), "tied": Tied(), "nested": Nested(), "both": Both()}
tied_apply = MODELS["tied"].apply


def direct(params, batch):
    logits = MODELS["direct"].apply({"params": params}, batch["tokens"], train=False)
    return picked(logits, batch["labels"]).mean()


def tied(params, batch):
    return picked(tied_apply({"params": params}, batch["tokens"]), batch["labels"]).mean()


def of_nested(params, tokens):
    return MODELS["nested"].apply({"params": params}, tokens, train=False)


def nested(params, batch):
    logits = of_nested(params, tokens=batch["tokens"])
    losses = picked(logits, batch["labels"])
    return losses.mean(), {"hits": (logits.argmax(-1) == batch["labels"]).mean()}


def both(params, batch):
    logits = MODELS["both"].apply({"params": params}, batch["tokens"])
    return picked(logits, batch["labels"]).mean()
