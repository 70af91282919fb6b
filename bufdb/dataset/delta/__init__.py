"""A dataset whose tables are Delta tables: the log that lists their files, and who writes them."""
