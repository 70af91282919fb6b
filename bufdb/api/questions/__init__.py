"""The questions of the command line as functions: a database to open and options in, facts out."""
