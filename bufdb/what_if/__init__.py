"""Compute what several changes together would save in one module; prints nothing."""
