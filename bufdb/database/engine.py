"""DuckDB's engine, without the Python package around it.

`import duckdb` takes three times the CPU of the extension module that it wraps: relations,
expressions, conversions, the metadata of the distribution. A question needs none of that, and takes
little longer than that import. What gives DuckDB rows from Arrow, or takes relations, imports
`duckdb` itself, which adds to the same classes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
else:
    try:
        import _duckdb as duckdb
    except ImportError:  # the extension has another name
        import duckdb

__all__ = ["duckdb"]
