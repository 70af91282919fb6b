"""Invariants of a database: what must hold of every dump, and of what bufdb derives from it.

Each is a query in the folder of checks that gives the rows that break it, as module_id and a text;
its header says where the rule comes from. Runs them; judges nothing itself.
"""

from dataclasses import dataclass

import duckdb

from bufdb import resources, run, saved_query
from bufdb.saved_query import SavedQuery


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold."""

    check: SavedQuery
    findings: list[tuple[int, str]]
    """(module_id, text) of every row that breaks it, never empty."""


def checks() -> list[SavedQuery]:
    """All invariants, by name."""
    paths = sorted(resources.check_folder().glob("*.sql"))
    return [saved_query.load(path) for path in paths]


def violations(con: duckdb.DuckDBPyConnection) -> list[Violation]:
    """The invariants that do not hold, by name.

    Raises:
        BufdbError: DuckDB failed on the way.
    """
    found = ((check, run.run_query(con, check, {}).rows) for check in checks())
    return [Violation(check, [(row[0], row[1]) for row in rows]) for check, rows in found if rows]


def summary(con: duckdb.DuckDBPyConnection, broken: list[Violation], examples: int) -> run.Result:
    """One row per violated invariant, with its number of findings and the first of them."""
    columns = [
        ("invariant", "VARCHAR"),
        ("title", "VARCHAR"),
        ("finding_count", "BIGINT"),
        ("module_count", "BIGINT"),
        ("examples", "VARCHAR"),
    ]
    names = _module_names(con)
    rows = [
        (
            violation.check.name,
            violation.check.title,
            len(violation.findings),
            len({module_id for module_id, _ in violation.findings}),
            "; ".join(
                f"{names.get(module_id, module_id)}: {text}"
                for module_id, text in violation.findings[:examples]
            ),
        )
        for violation in broken
    ]
    return run.Result(columns, rows)


def _module_names(con: duckdb.DuckDBPyConnection) -> dict[int, str]:
    rows = con.execute("SELECT module_id, run_name || '/' || module_key FROM modules").fetchall()
    return {module_id: str(name) for module_id, name in rows}
