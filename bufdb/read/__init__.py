"""Readers: one module per section or kind of dump file, each reading like its grammar.

Text goes in, columns come out; no files, no database. `Format section 7.1` in a docstring, here and
elsewhere, is the heading of that number in data/FORMAT.md.
"""
