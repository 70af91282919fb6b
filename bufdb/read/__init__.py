"""Readers: one module per section or kind of dump file, each reading like its grammar.

Text goes in, columns come out; no files, no database. Section numbers in the docstrings are those
of the format (allocations, used values, live ranges, instruction text, HLO text).
"""
