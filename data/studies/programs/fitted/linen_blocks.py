"""A classifier of flax linen whose blocks come one after another."""

import flax.linen as nn
import jax
import jax.numpy as jnp

BLOCKS, WIDTH, BATCH = 6, 256, 512


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(h)


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(BLOCKS):
            x = Block()(x)
        return nn.Dense(10)(x)


model = Classifier()


def step(params, x):
    return jax.grad(lambda p: jnp.mean(nn.log_softmax(model.apply(p, x))[:, 0]))(params)


def args():
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32)
    return jax.eval_shape(model.init, jax.random.key(0), x), x
