"""Show a module in a terminal: pictures made of characters."""
