"""`bufdb fit`: what to change so that a JAX function fits, proved by compiling, as a patch."""
