"""Runs in the database: their labels, and their removal.

Invariant: a removal leaves no row in any table. The tables are found in the catalog by their
columns, so that a table added to the schema is not forgotten here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bufdb.database.engine import duckdb
from bufdb.errors import UsageError, did_you_mean, listed, quote

LIVE_TABLES = (
    "live_profiles",
    "live_arrays",
    "live_frames",
    "live_programs",
    "allocator_statistics",
    "live_totals",
)
"""Tables with rows of a memory profile or log, by run_name and profile_name."""
SELECTED = "SELECT count(*) > 0 FROM run_selectors WHERE selector GLOB ?"
"""Whether a glob selects a run."""

_SHOWN = 6
"""Names listed if none is similar."""
_SPECIAL = r"[*?[]"
_LITERAL = r"\[([*?[])\]"
"""A character of a name in a glob of that name alone."""


class Removal(NamedTuple):
    """What was removed."""

    module_count: int
    row_count: int
    """Rows of all tables, shapes that nothing uses any more included."""


def names(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of all runs, sorted."""
    rows = con.execute("SELECT run_name FROM runs ORDER BY run_name").fetchall()
    return [name for (name,) in rows]


def require(con: duckdb.DuckDBPyConnection, wanted: Iterable[str]) -> None:
    """Check that there are runs of all these names.

    Raises:
        UsageError: there is no run of some name.
    """
    known = names(con)
    for name in wanted:
        if name not in known:
            raise _no_run(name, known)


def require_selected(con: duckdb.DuckDBPyConnection, selections: Iterable[str]) -> None:
    """Check that each of these globs selects a run, by its name or by LABEL=VALUE.

    Raises:
        UsageError: one selects none.
    """
    for selection in selections:
        if not con.execute(SELECTED, [selection]).fetchall()[0][0]:
            known = con.execute(
                "SELECT selector FROM run_selectors GROUP BY selector "
                "ORDER BY bool_and(run_name <> selector), selector"
            ).fetchall()
            raise _no_run(re.sub(_LITERAL, r"\1", selection), [name for (name,) in known])


def _no_run(name: str, known: Sequence[str]) -> UsageError:
    """Return the error for a name that no run has."""
    if not known:
        return UsageError(f"no run {quote(name)}: no run is stored")
    if name in known:  # a name that, as a glob, does not match itself
        literal = re.sub(_SPECIAL, r"[\g<0>]", name)
        return UsageError(
            f"no run {quote(name)}; where [ * ? match other characters, the name is "
            f"{quote(literal)}"
        )
    near = did_you_mean(re.sub(_SPECIAL, "", name), known) or f"; there is {listed(known, _SHOWN)};"
    return UsageError(f"no run {quote(name)}{near} 'bufdb runs' lists them")


def set_labels(
    con: duckdb.DuckDBPyConnection, run: str, labels: Mapping[str, str], *, metadata: bool = False
) -> None:
    """Give a run these labels, or this metadata; its others stay.

    Raises:
        UsageError: there is no such run.
    """
    require(con, [run])
    con.execute("BEGIN")
    try:
        _delete_labels(con, run, labels)
        for label, value in labels.items():
            row = [run, label, value, metadata]
            con.execute("INSERT INTO run_labels VALUES (?, ?, ?, ?)", row)
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def remove_labels(con: duckdb.DuckDBPyConnection, run: str, labels: Iterable[str]) -> None:
    """Take these labels from a run.

    Raises:
        UsageError: there is no such run, or it lacks one of the labels; nothing is changed then.
    """
    require(con, [run])
    labels = list(labels)
    rows = con.execute("SELECT label FROM run_labels WHERE run_name = ?", [run]).fetchall()
    known = sorted(label for (label,) in rows)
    for label in labels:
        if label not in known:
            hint = did_you_mean(label, known) or f"; it has {', '.join(known) or 'none'}"
            raise UsageError(f"run {run} has no label {quote(label)}{hint}")
    con.execute("BEGIN")
    try:
        _delete_labels(con, run, labels)
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def remove_runs(con: duckdb.DuckDBPyConnection, runs: Iterable[str]) -> dict[str, Removal]:
    """Remove runs with everything of theirs, in one transaction; return what was removed, by run.

    Raises:
        UsageError: there is no run of some name; nothing is removed then.
    """
    wanted = list(dict.fromkeys(runs))
    require(con, wanted)
    con.execute("BEGIN")
    try:
        removed = {run: delete(con, run) for run in wanted}
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")
    # Gives the space back to the file now, and not at the next write.
    con.execute("CHECKPOINT")
    return removed


def delete(con: duckdb.DuckDBPyConnection, run: str) -> Removal:
    """Delete all rows of a run, if there is one, in the transaction that is open."""
    if con.execute("SELECT 1 FROM runs WHERE run_name = ?", [run]).fetchone() is None:
        return Removal(0, 0)
    by_module, by_run = _tables_with(con, "module_id"), _tables_with(con, "run_name")
    modules = "(SELECT module_id FROM modules WHERE run_name = ?)"
    (module_count,) = con.execute(
        "SELECT count(*) FROM modules WHERE run_name = ?", [run]
    ).fetchall()[0]
    rows = 0
    # `modules` goes with the tables of runs: until then it says whose the modules are.
    for table in by_module:
        if table not in by_run:
            rows += _delete(con, f'"{table}" WHERE module_id IN {modules}', [run])
    for table in by_run:
        rows += _delete(con, f'"{table}" WHERE run_name = ?', [run])
    return Removal(module_count, rows + delete_unused(con))


def delete_unused(con: duckdb.DuckDBPyConnection) -> int:
    """Delete the shapes and contents that no module has any more; return how many."""
    shapes = 'shapes WHERE shape NOT IN (SELECT "values".shape FROM "values")'
    contents = "file_contents WHERE content_hash NOT IN (SELECT content_hash FROM files)"
    return _delete(con, shapes, []) + _delete(con, contents, [])


def _tables_with(con: duckdb.DuckDBPyConnection, column: str) -> list[str]:
    rows = con.execute(
        "SELECT duckdb_columns.table_name FROM duckdb_columns() "
        "JOIN duckdb_tables() ON duckdb_tables.table_oid = duckdb_columns.table_oid "
        "WHERE duckdb_columns.column_name = ? AND NOT duckdb_columns.internal "
        "ORDER BY duckdb_columns.table_name",
        [column],
    ).fetchall()
    return [name for (name,) in rows]


def _delete(con: duckdb.DuckDBPyConnection, where: str, values: list[str]) -> int:
    count: int = con.execute(f"DELETE FROM {where}", values).fetchall()[0][0]
    return count


def _delete_labels(con: duckdb.DuckDBPyConnection, run: str, labels: Iterable[str]) -> None:
    for label in labels:
        con.execute("DELETE FROM run_labels WHERE run_name = ? AND label = ?", [run, label])
