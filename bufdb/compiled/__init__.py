"""What JAX compiles in this process, as dumps: of a function, of a block, for hardware at hand."""
