"""What a command or a function compiles, stored as a run."""
