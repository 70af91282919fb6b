"""Classifier in the layout of flax's nnx tutorials: a model, an optimizer and nnx.jit."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Mlp(nnx.Module):
    def __init__(self, din, dmid, dout, depth, rngs):
        self.first = nnx.Linear(din, dmid, rngs=rngs)
        self.hidden = nnx.List([nnx.Linear(dmid, dmid, rngs=rngs) for _ in range(depth)])
        self.last = nnx.Linear(dmid, dout, rngs=rngs)

    def __call__(self, x):
        x = nnx.gelu(self.first(x))
        for layer in self.hidden:
            x = x + nnx.gelu(layer(x))
        return self.last(x)


def loss_fn(model, x, y):
    logits = model(x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)
    return loss


def main():
    model = Mlp(64, 128, 10, 8, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(1), (2048, 64))
    y = jnp.arange(2048) % 10
    for step in range(2):
        print(step, float(train_step(model, optimizer, x, y)))


if __name__ == "__main__":
    main()
