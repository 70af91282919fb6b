"""Step functions: what changes from instant to instant, and the sums of it."""
