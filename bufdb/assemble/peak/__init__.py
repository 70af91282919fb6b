"""What allocations, values and live ranges say together: checks, peaks, and their savings."""
