"""Rows that no reader gives: of modules, of runs, and findings about what is missing."""
