"""Neural ODE in the layout of diffrax's example: diffeqsolve in a module, a step in main()."""

import diffrax
import equinox as eqx
import jax
import jax.nn as jnn
import jax.numpy as jnp
import jax.random as jr
import optax


class Func(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, data_size, width_size, depth, *, key):
        self.mlp = eqx.nn.MLP(
            data_size, data_size, width_size, depth, activation=jnn.softplus, key=key
        )

    def __call__(self, t, y, args):
        return self.mlp(y)


class NeuralODE(eqx.Module):
    func: Func

    def __init__(self, data_size, width_size, depth, *, key):
        self.func = Func(data_size, width_size, depth, key=key)

    def __call__(self, ts, y0):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(self.func),
            diffrax.Tsit5(),
            t0=ts[0],
            t1=ts[-1],
            dt0=ts[1] - ts[0],
            y0=y0,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            saveat=diffrax.SaveAt(ts=ts),
            max_steps=64,
        )
        return solution.ys


def main(batch_size=64, width_size=64, depth=2, steps=2):
    ts = jnp.linspace(0, 1, 16)
    data_key, model_key = jr.split(jr.key(0))
    ys = jnp.cos(ts[None, :, None] + jr.normal(data_key, (batch_size, 1, 2)))
    model = NeuralODE(2, width_size, depth, key=model_key)

    @eqx.filter_value_and_grad
    def grad_loss(model, ti, yi):
        y_pred = jax.vmap(model, in_axes=(None, 0))(ti, yi[:, 0])
        return jnp.mean((yi - y_pred) ** 2)

    @eqx.filter_jit
    def make_step(ti, yi, model, opt_state):
        loss, grads = grad_loss(model, ti, yi)
        updates, opt_state = optim.update(grads, opt_state)
        model = eqx.apply_updates(model, updates)
        return loss, model, opt_state

    optim = optax.adabelief(3e-3)
    opt_state = optim.init(eqx.filter(model, eqx.is_inexact_array))
    for step in range(steps):
        loss, model, opt_state = make_step(ts, ys, model, opt_state)
        print(step, loss)


if __name__ == "__main__":
    main()
