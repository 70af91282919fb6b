"""Questions to a database; records come back. Prints nothing."""
