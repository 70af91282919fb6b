"""A program run with dumps of XLA switched on, and what came of it."""
