"""Answers for the command line and Python: the questions asked of a database, and their text."""
