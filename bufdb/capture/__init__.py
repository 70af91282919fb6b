"""Dump what a program, a function or a block compiles, also for hardware that is not present."""
