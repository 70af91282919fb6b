"""The answers of the command line and of Python: what is asked of a database, and its text."""
