"""Processes that read groups of modules while this one stores what they read."""
