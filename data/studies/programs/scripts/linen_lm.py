"""Language model in the layout of flax's lm1b example: everything in train_and_evaluate(config)."""

import argparse
import dataclasses

import flax.linen as nn
import jax
import numpy as np
import optax
from flax.training import train_state


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 512
    dim: int = 64
    heads: int = 4
    layers: int = 4
    length: int = 64
    batch: int = 16
    steps: int = 2


class Block(nn.Module):
    config: Config

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.SelfAttention(num_heads=self.config.heads)(
            h, mask=nn.make_causal_mask(h[..., 0])
        )
        h = nn.Dense(4 * self.config.dim)(nn.LayerNorm()(x))
        return x + nn.Dense(self.config.dim)(nn.gelu(h))


class Model(nn.Module):
    config: Config

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.config.vocab, self.config.dim)(tokens)
        for _ in range(self.config.layers):
            x = Block(self.config)(x)
        return nn.Dense(self.config.vocab)(nn.LayerNorm()(x))


def train_step(state, tokens):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss}


def train_and_evaluate(config):
    data = np.random.default_rng(0).integers(0, config.vocab, (8, config.batch, config.length + 1))
    model = Model(config)
    params = jax.jit(model.init)(jax.random.key(0), data[0, :, :-1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
    p_train_step = jax.jit(train_step, donate_argnums=(0,))
    for step in range(config.steps):
        state, metrics = p_train_step(state, data[step % len(data)])
        print(step, float(metrics["loss"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for field in dataclasses.fields(Config):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    train_and_evaluate(Config(**vars(parser.parse_args())))
