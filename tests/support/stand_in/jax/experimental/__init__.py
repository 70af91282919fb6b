"""See jax."""
