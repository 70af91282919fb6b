"""Rows on their way into tables, and those that no reader gives: of modules, of runs, findings."""
