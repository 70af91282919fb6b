"""Queries of a database, which return records. Prints nothing."""
