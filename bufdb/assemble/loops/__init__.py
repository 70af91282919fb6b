"""Loops: which instruction made the data of the buffers that a loop carries."""
