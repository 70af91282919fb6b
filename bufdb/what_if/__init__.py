"""What several changes together would save: rows of one module in, figures out; prints nothing."""
