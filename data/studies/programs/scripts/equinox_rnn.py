"""GRU in the layout of equinox's train_rnn example: make_step is jitted inside main()."""

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jrandom
import optax


class RNN(eqx.Module):
    cell: eqx.Module
    linear: eqx.nn.Linear
    hidden_size: int

    def __init__(self, in_size, out_size, hidden_size, *, key):
        ckey, lkey = jrandom.split(key)
        self.hidden_size = hidden_size
        self.cell = eqx.nn.GRUCell(in_size, hidden_size, key=ckey)
        self.linear = eqx.nn.Linear(hidden_size, out_size, key=lkey)

    def __call__(self, input):
        def f(carry, inp):
            return self.cell(inp, carry), None

        out, _ = lax.scan(f, jnp.zeros((self.hidden_size,)), input)
        return jax.nn.sigmoid(self.linear(out))


def main(batch_size=128, length=64, hidden_size=64, steps=2):
    model_key, data_key = jrandom.split(jrandom.key(0))
    model = RNN(2, 1, hidden_size, key=model_key)
    x = jrandom.normal(data_key, (batch_size, length, 2))
    y = (x.sum((1, 2)) > 0).astype(jnp.float32)

    @eqx.filter_value_and_grad
    def compute_loss(model, x, y):
        pred_y = jax.vmap(model)(x)[:, 0]
        return -jnp.mean(y * jnp.log(pred_y) + (1 - y) * jnp.log(1 - pred_y))

    @eqx.filter_jit
    def make_step(model, x, y, opt_state):
        loss, grads = compute_loss(model, x, y)
        updates, opt_state = optim.update(grads, opt_state)
        model = eqx.apply_updates(model, updates)
        return loss, model, opt_state

    optim = optax.adam(3e-3)
    opt_state = optim.init(eqx.filter(model, eqx.is_inexact_array))
    for step in range(steps):
        loss, model, opt_state = make_step(model, x, y, opt_state)
        print(step, loss.item())


if __name__ == "__main__":
    main()
