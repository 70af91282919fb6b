"""Reports of sizes beside the buffer assignment (section 9): out of memory, and memory usage."""
