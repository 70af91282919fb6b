"""A program run with XLA told to dump, and what came of it."""
