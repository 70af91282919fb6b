"""XLA buffer-assignment dumps as DuckDB tables, with saved SQL queries."""

__version__ = "0.1.0"
