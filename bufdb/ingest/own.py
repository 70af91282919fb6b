"""What counts as the user's own among installed packages: globs into one regular expression.

The expression is stored with each module (modules.own_pattern), since views judge lines by it
too; so it has only what Python's regular expressions and DuckDB's (RE2) treat alike, and is for
whole paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bufdb.dumps.files import as_text
from bufdb.read.own import Own, parse_own

if TYPE_CHECKING:
    import duckdb


OWN_LABEL = "own"
"""Metadata of a run that has the globs, for people to read."""


def own_of_run(con: duckdb.DuckDBPyConnection, run: str, globs: Sequence[str] | None) -> Own:
    """Return what globs say; without any, what the run's modules were read with."""
    if globs is not None:
        return parse_own(globs)
    row = con.execute("SELECT max(own_pattern) FROM modules WHERE run_name = ?", [run]).fetchone()
    return Own(row[0] if row else None)


def own_note_globs(con: duckdb.DuckDBPyConnection, run: str, globs: Sequence[str] | None) -> None:
    """Write the given globs, if any, into the metadata of a run in place of the earlier ones.

    A label of that name that the user gave it stays.
    """
    if globs is None:
        return
    con.execute(
        "DELETE FROM run_labels WHERE run_name = ? AND label = ? AND is_metadata", [run, OWN_LABEL]
    )
    text = as_text(" ".join(dict.fromkeys(glob for glob in globs if glob)))
    if text:
        con.execute(
            "INSERT INTO run_labels SELECT $run, $label, $text, TRUE WHERE NOT EXISTS "
            "(FROM run_labels WHERE run_name = $run AND label = $label)",
            {"run": run, "label": OWN_LABEL, "text": text},
        )


def left_own(con: duckdb.DuckDBPyConnection, run: str, own: Own) -> list[str]:
    """Return a note if modules of a run, not among those read now, have another --own."""
    row = con.execute(
        "SELECT count(*) FROM modules WHERE run_name = ? AND own_pattern IS DISTINCT FROM ?",
        [run, own.pattern],
    ).fetchone()
    return [own_note(run, f"{row[0]} modules")] if row and row[0] else []


def own_note(run: str, modules: str) -> str:
    """Return what a user should know about `modules` of a run, which have another --own."""
    return (
        f"run {run}: {modules} outside these paths keep their previous --own; ingest their "
        "dumps again to change it"
    )
