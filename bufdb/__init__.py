"""XLA buffer-assignment dumps as DuckDB tables, with saved SQL queries.

    import bufdb

    with bufdb.connect() as db:
        db.ingest("dumps", run="b16")
        print(db.summary())
        frame = db.query("peak-by", by="op", top_n=5).df()

`bufdb.explain(f, *args)` summarizes one function, `bufdb.fit(f, *args, limit=…)` finds what to
change in it so that it fits. API.md describes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bufdb.api.database import connect
    from bufdb.api.explain import explain
    from bufdb.api.fit import fit
    from bufdb.api.watch import watch

__version__ = "0.2.0"
__all__ = ["__version__", "connect", "explain", "fit", "watch"]


def __getattr__(name: str) -> Any:
    """Return a name of `__all__`, imported on first use: `import bufdb` imports nothing."""
    if name == "connect":
        from bufdb.api.database import connect

        return connect
    if name == "explain":
        from bufdb.api.explain import explain

        return explain
    if name == "fit":
        import importlib

        return importlib.import_module("bufdb.fit")
    if name == "watch":
        from bufdb.api.watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
