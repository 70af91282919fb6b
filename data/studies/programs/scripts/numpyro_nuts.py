"""Logistic regression in the layout of numpyro's examples: MCMC(NUTS(model)).run."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS


def model(x, y=None):
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(x.shape[1]), 1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    numpyro.sample("obs", dist.Bernoulli(logits=x @ coefs + intercept), obs=y)


def main():
    x = jax.random.normal(jax.random.key(0), (4096, 32))
    y = (x.sum(1) > 0).astype(jnp.float32)
    mcmc = MCMC(NUTS(model), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(1), x, y)
    mcmc.print_summary()


if __name__ == "__main__":
    main()
