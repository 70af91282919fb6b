"""A decoder whose layers are scanned."""

import jax
import jax.numpy as jnp


def init(config, key):
    dim, mlp, layers = config.base_emb_dim, config.base_mlp_dim, config.base_num_decoder_layers
    keys = jax.random.split(key, 5)
    shapes = {"wq": (dim, dim), "wk": (dim, dim), "wi": (dim, mlp), "wo": (mlp, dim)}
    stack = {
        name: 0.02 * jax.random.normal(k, (layers, *shape))
        for k, (name, shape) in zip(keys, shapes.items(), strict=False)
    }
    table = 0.02 * jax.random.normal(keys[4], (config.vocab_size, dim))
    return {"table": table, "layers": stack}


def decoder_layer(x, weights):
    scores = (x @ weights["wq"]) @ (x @ weights["wk"]).swapaxes(-1, -2)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    attention = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    x = x + attention @ x
    return x + jax.nn.gelu(x @ weights["wi"]) @ weights["wo"], None


def apply(params, tokens):
    x = params["table"][tokens]
    x, _ = jax.lax.scan(decoder_layer, x, params["layers"])
    return x @ params["table"].T
