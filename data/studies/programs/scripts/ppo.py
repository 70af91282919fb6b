"""PPO in the layout of purejaxrl: make_train(config), and the whole training is jitted at once."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen.initializers import constant, orthogonal
from flax.training.train_state import TrainState


class ActorCritic(nn.Module):
    action_dim: int

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)))(x))
        h = nn.tanh(nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)))(h))
        logits = nn.Dense(self.action_dim, kernel_init=orthogonal(0.01))(h)
        v = nn.tanh(nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)))(x))
        v = nn.tanh(nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)))(v))
        value = nn.Dense(1, bias_init=constant(0.0))(v)
        return logits, jnp.squeeze(value, axis=-1)


class Transition(NamedTuple):
    done: jnp.ndarray
    action: jnp.ndarray
    value: jnp.ndarray
    reward: jnp.ndarray
    log_prob: jnp.ndarray
    obs: jnp.ndarray


def env_step(state, action):
    """Move a cart with a pole by a force of -10 or 10."""
    x, v, angle, rate = state
    force = jnp.where(action == 1, 10.0, -10.0)
    temp = (force + 0.05 * rate**2 * jnp.sin(angle)) / 1.1
    turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * temp) / 0.6
    push = temp - 0.05 * turn * jnp.cos(angle) / 1.1
    state = jnp.stack([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * rate, rate + 0.02 * turn])
    done = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.2)
    return jnp.where(done, jnp.zeros(4), state), 1.0, done


def log_probability(logits, action):
    return jnp.take_along_axis(nn.log_softmax(logits), action[..., None], -1)[..., 0]


def make_train(config):
    batch = config["NUM_ENVS"] * config["NUM_STEPS"]

    def train(rng):
        network = ActorCritic(2)
        params = network.init(rng, jnp.zeros(4))
        tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(config["LR"], eps=1e-5))
        train_state = TrainState.create(apply_fn=network.apply, params=params, tx=tx)
        obs = 0.05 * jax.random.normal(rng, (config["NUM_ENVS"], 4))

        def _update_step(runner_state, unused):
            def _env_step(runner_state, unused):
                train_state, obs, rng = runner_state
                rng, key = jax.random.split(rng)
                logits, value = network.apply(train_state.params, obs)
                action = jax.random.categorical(key, logits)
                log_prob = log_probability(logits, action)
                new_obs, reward, done = jax.vmap(env_step)(obs, action)
                reward = jnp.full(value.shape, reward)
                transition = Transition(done, action, value, reward, log_prob, obs)
                return (train_state, new_obs, rng), transition

            runner_state, traj = jax.lax.scan(_env_step, runner_state, None, config["NUM_STEPS"])
            train_state, obs, rng = runner_state
            _, last_val = network.apply(train_state.params, obs)

            def _advantages(carry, transition):
                gae, next_value = carry
                left = 1 - transition.done
                delta = transition.reward + 0.99 * next_value * left - transition.value
                gae = delta + 0.99 * 0.95 * left * gae
                return (gae, transition.value), gae

            start = jnp.zeros_like(last_val), last_val
            _, advantages = jax.lax.scan(_advantages, start, traj, reverse=True)
            targets = advantages + traj.value

            def _update_epoch(update_state, unused):
                def _update_minbatch(train_state, batch_info):
                    def _loss_fn(params, traj, gae, targets):
                        logits, value = network.apply(params, traj.obs)
                        ratio = jnp.exp(log_probability(logits, traj.action) - traj.log_prob)
                        gae = (gae - gae.mean()) / (gae.std() + 1e-8)
                        clipped = jnp.clip(ratio, 0.8, 1.2) * gae
                        loss_actor = -jnp.minimum(ratio * gae, clipped).mean()
                        value_loss = 0.5 * jnp.square(value - targets).mean()
                        entropy = -jnp.sum(nn.softmax(logits) * nn.log_softmax(logits), -1).mean()
                        return loss_actor + 0.5 * value_loss - 0.01 * entropy

                    grads = jax.grad(_loss_fn)(train_state.params, *batch_info)
                    return train_state.apply_gradients(grads=grads), None

                train_state, rng = update_state
                rng, key = jax.random.split(rng)
                order = jax.random.permutation(key, batch)

                def shuffled(x):
                    x = x.reshape((batch, *x.shape[2:]))[order]
                    return x.reshape((config["NUM_MINIBATCHES"], -1, *x.shape[1:]))

                minibatches = jax.tree.map(shuffled, (traj, advantages, targets))
                train_state, _ = jax.lax.scan(_update_minbatch, train_state, minibatches)
                return (train_state, rng), None

            epochs = config["UPDATE_EPOCHS"]
            (train_state, rng), _ = jax.lax.scan(_update_epoch, (train_state, rng), None, epochs)
            return (train_state, obs, rng), traj.reward.sum()

        updates = config["NUM_UPDATES"]
        runner_state, metrics = jax.lax.scan(_update_step, (train_state, obs, rng), None, updates)
        return {"runner_state": runner_state, "metrics": metrics}

    return train


if __name__ == "__main__":
    config = {
        "LR": 2.5e-4,
        "NUM_ENVS": 64,
        "NUM_STEPS": 128,
        "NUM_UPDATES": 2,
        "UPDATE_EPOCHS": 2,
        "NUM_MINIBATCHES": 4,
    }
    train_jit = jax.jit(make_train(config))
    out = train_jit(jax.random.PRNGKey(30))
    print(out["metrics"])
