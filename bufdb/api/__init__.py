"""bufdb for Python: `Database`, and the questions of the command line as functions."""
