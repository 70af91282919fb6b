"""Many lines at once: a text as arrays of bytes, its lines as rows, rows as Arrow batches.

Knows nothing of XLA: what the lines mean is known to `bufdb.read`.
"""
