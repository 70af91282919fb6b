"""Which files there are, which belong to one module, and their bytes as sections to read."""
