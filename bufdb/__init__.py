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

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
__all__ = ["__version__", "connect", "explain", "fit", "watch"]

_HOMES = {
    "connect": "bufdb.api.database",
    "explain": "bufdb.api.explain",
    "fit": "bufdb.api.fit",
    "watch": "bufdb.api.watch",
}


def __getattr__(name: str) -> Any:
    """Return a function of `_HOMES`, imported on first use: `import bufdb` imports nothing.

    `__init__.pyi` has their types.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
