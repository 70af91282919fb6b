"""A decoder of flax linen: nn.scan of nn.remat."""

import flax.linen as nn
import jax
import jax.numpy as jnp

LAYERS, WIDTH, LENGTH, BATCH = 4, 128, 128, 4


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        d = x.shape[-1]
        h = nn.LayerNorm()(x)
        q, k, v = jnp.split(nn.Dense(3 * d, use_bias=False)(h), 3, -1)
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / d**0.5
        mixed = jnp.einsum("bqk,bkd->bqd", nn.softmax(scores), v)
        x = x + nn.Dense(d, use_bias=False)(mixed)
        up = nn.Dense(4 * d)(nn.LayerNorm()(x))
        return x + nn.Dense(d)(nn.gelu(up)), None


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block, prevent_cse=False)
        layers = nn.scan(
            block, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS
        )
        x, _ = layers(name="layers")(x, None)
        return nn.LayerNorm()(x)


model = Decoder()


def step(params, x):
    return jax.value_and_grad(lambda p: jnp.mean(model.apply(p, x) ** 2))(params)


def args():
    x = jax.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), jnp.float32)
    return jax.eval_shape(model.init, jax.random.key(0), x), x
