"""What to read, what has changed since, and what to store, many modules in a transaction."""
