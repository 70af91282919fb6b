"""How much memory DuckDB may take for a question or an ingest, and how many threads that is for.

The requested limit is a context variable, as `PATIENCE` is: every way to open a database is
bounded alike. Invariant: DuckDB always has a limit, since its own is four fifths of the machine.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    import duckdb


FOR_QUESTIONS = 768_000_000
"""Bytes for answers unless others are asked for: a process stays below 1 GB with what Python and
DuckDB's own code take. What needs more spills."""
BYTES_PER_THREAD = 125_000_000
"""The least that DuckDB advises for each thread: on a machine of 64 cores the threads would hold a
limit's memory before there is anything in it."""
SMALL_FILE = 8_000_000
"""Bytes of a database up to which one thread answers."""

_ONE_THREAD = {"threads": "4", "external_threads": "4", "async_threads": "0"}
"""One that works: DuckDB starts none, and shares its caches among four. With one it takes 2 MB for
each GROUP BY, however small, and so half of them: 22 of 430 ms of CPU of a summary.

Nor does it start threads that wait for files, by default four for each core: it reads on the one
that works. A process of one thread locks nothing when it allocates (7 of 380 ms)."""

PLANNED_SOON = {
    "approximate_join_order_threshold": "1",
    "disabled_optimizers": ",".join(
        (
            "common_subexpressions",
            "compressed_materialization",
            "cte_filter_pusher",
            "duplicate_groups",
            "join_filter_pushdown",
            "outer_join_simplification",
        )
    ),
}
"""What DuckDB leaves out for a question of bufdb's own about a small file, whose plan takes longer
than what it saves: the best order of many joins instead of a good one, and rules that save rows or
memory. Answers are the same. Of a summary it is 5 % of the CPU over 1 MB of tables, and 3 to 8 %
over the largest file that is small.

Common subplans stay: without, advice and a page need 150 MB over the demo's dumps, not 120."""

SMALL: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
"""Connections to databases of up to SMALL_FILE bytes."""

FOR_INGEST = 256_000_000
"""Bytes for an ingest, in addition to which Python holds a block of text and the names of a module:
twice as many save no time."""

MEMORY_LIMIT: ContextVar[int | None] = ContextVar("memory_limit", default=None)
"""Bytes that were asked for; None leaves it to the code that opens the database."""


def memory_limit() -> int:
    """Return the bytes that DuckDB may take for a question."""
    return MEMORY_LIMIT.get() or FOR_QUESTIONS


def ingest_memory() -> str:
    """Return what DuckDB may take for an ingest, as its setting says it."""
    return f"{MEMORY_LIMIT.get() or FOR_INGEST}B"


def settings_of_questions(*, is_small: bool) -> dict[str, str]:
    """Return DuckDB's limit for a question, and one thread for a small file (SMALL_FILE).

    Most of an answer from one is its planning, by one thread, and others that look for work in it
    take a quarter more CPU. SQL that reads other files is not bound by it: those may be large.
    """
    limit = {"memory_limit": f"{memory_limit()}B"}
    return {**limit, **_ONE_THREAD} if is_small else limit


def bound_threads(con: duckdb.DuckDBPyConnection) -> None:
    """Give DuckDB no more threads than its memory is enough for."""
    ((threads,),) = con.execute("SELECT current_setting('threads')").fetchall()
    allowed = max(1, memory_limit() // BYTES_PER_THREAD)
    if threads > allowed:
        con.execute(f"SET threads = {allowed}")
