"""Limits of memory, read from a file, and whether a run keeps them."""
