"""Pictures of a module in the characters of a terminal."""
